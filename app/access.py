"""Which paths the page opens: any on one's own machine, but only named folders once others can reach the server."""

import ipaddress
import os

ROOTS = "LOOPSCOPE_CHECKPOINT_ROOTS"
"""Environment variable with the folders in which checkpoints, run folders and state files may lie."""


def guard(address: str | None) -> None:
    """Let no path be opened where other machines can reach the server and no folder was named.

    ``streamlit run`` has no option for the folders, so this is settled by the page, before it reads any path.
    """
    if beyond_loopback(address):
        os.environ.setdefault(ROOTS, "")


def beyond_loopback(address: str | None) -> bool:
    """Whether a server listening on this address can be reached from other machines; no address is all of them."""
    if address is None or not address.strip():
        return True
    if address == "localhost" or address.startswith("unix:"):
        return False
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return True  # a name: wherever it points


def paths_words() -> tuple[str, str]:
    """What a reader must know before typing a path, and what can be done about it; "" twice where every path is open."""
    roots = os.environ.get(ROOTS)
    if roots is None:
        return "", ""
    more = f"Whoever starts the server names folders: `loopscope app --checkpoint-root DIR`, or the variable {ROOTS}."
    folders = [folder for folder in roots.split(os.pathsep) if folder.strip()]
    if not folders:
        return "Demo steps and uploads only: other machines can reach this server, so its paths are closed.", more
    return f"Paths are opened below {' and '.join(folders)} only.", more
