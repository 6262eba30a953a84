"""Which checkpoint is chosen: a demo step, an upload or a typed path, how it stands in the link, and what it is called."""

from typing import Final

from analysis import study
from app import link, state

PATH: Final = "path"
"""The choice beside demo steps and uploads: a path, which has a field of its own."""

_CHOICE = "checkpoint"
_TYPED = "checkpoint_path"
_QUERY = "checkpoint"
_UPLOAD = "upload:"
_STEP_WORDS = "Demo, training step "
"""What a demo step is called; older links carry these words too."""


def choices() -> dict[str, str]:
    """What there is to choose, and the words for it: demo steps, uploads of this session or of the link, and a path."""
    kept, chosen = _upload(), str(state.get(_CHOICE) or "")
    uploads = [name for name in (kept.name if kept else "", chosen) if name.startswith(_UPLOAD)]
    steps = {name: name.replace("demo@", _STEP_WORDS) for name in study.checkpoints()}
    return steps | {name: name for name in uploads} | {PATH: "A path on this machine"}


def seed(default: str) -> None:
    """Before the field appears for the first time: fill it from the link, else with the default."""
    if state.get(_CHOICE) is not None:
        return
    asked = link.read(_QUERY).strip().replace(_STEP_WORDS, "demo@")
    name = default if asked in ("", "demo") else asked
    listed = name in study.checkpoints() or name.startswith(_UPLOAD)
    state.put(_CHOICE, name if listed else PATH)
    if not listed:
        state.put(_TYPED, name)


def keep(default: str) -> None:
    """Put what was chosen into the link, and leave it out where it is the default."""
    chosen = name()
    if chosen and chosen != default:
        link.keep(_QUERY, chosen)
    else:
        link.drop(_QUERY)


def name() -> str:
    """Name or path of the checkpoint; "" while no path was typed yet."""
    chosen = str(state.get(_CHOICE) or "")
    return str(state.get(_TYPED) or "").strip() if chosen == PATH else chosen


def by_path() -> bool:
    """Whether the checkpoint is a path that the reader types."""
    return state.get(_CHOICE) == PATH


def by_upload() -> bool:
    """Whether the checkpoint was uploaded."""
    return name().startswith(_UPLOAD)


def choose_upload(upload: study.Upload) -> None:
    """Make an upload the chosen checkpoint, once; the reader may choose another one afterwards. Before the field appears."""
    kept = _upload()
    if kept is None or kept.name != upload.name:
        state.put("_upload", upload)
        state.put(_CHOICE, upload.name)


def spoken(problem: str) -> str:
    """A sentence about the checkpoint, in which an upload is called by its name and not by its folder on the server."""
    kept = _upload()
    if kept is None or name() != kept.name:
        return problem
    label = kept.name.removeprefix(_UPLOAD).rpartition("@")[0]
    problem = problem.replace(f"The folder {kept.folder.name!r}", f"The upload {label!r}")
    return problem.replace(str(kept.folder), label).replace(kept.folder.name, label)


def _upload() -> study.Upload | None:
    return state.get("_upload")
