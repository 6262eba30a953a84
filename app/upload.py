"""The form that takes an uploaded checkpoint: a folder or its files, kept until the browser leaves."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

import streamlit as st

from analysis import study
from app import cache, chosen
from app.markdown import literal

_MIB = 2**20
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


def form() -> Any:
    """The form, with what is wrong with the files beside them; returns the place for what turns out to be wrong later."""
    kind = st.segmented_control(
        "What to upload",
        ["folder", "files"],
        default="folder",
        required=True,
        format_func=str.capitalize,
        key="upload_kind",
        label_visibility="collapsed",
    )
    cap = int(st.get_option("server.maxUploadSize"))
    label = "Folder of a checkpoint" if kind == "folder" else "Files of a checkpoint"
    given = cast(
        "Sequence[Any]",
        st.file_uploader(label, accept_multiple_files="directory" if kind == "folder" else True, key=f"upload_{kind}"),
    )
    trouble = st.container(key="upload_trouble")
    st.caption(
        f"Up to {cap} MiB together: weights with config.json, and tokenizer.json where there is one. Kept in a private folder, "
        "removed when this tab closes. For larger ones type a path."
    )
    said = _take(given, cap) if given else ""
    if said:
        trouble.error(literal(said))
    return trouble


def _take(given: Sequence[Any], cap: int) -> str:
    """Keep the files and choose them; a sentence where they are refused, and the checkpoint stays as it was."""
    said = refusal([(file.name, file.size) for file in given], cap)
    if said:
        return said
    files: list[tuple[str, BinaryIO]] = [(file.name, file) for file in given]
    try:
        chosen.choose_upload(cache.upload(tuple(file.file_id for file in given), files, limit=cap * _MIB))
    except study.KNOWN_ERRORS as error:
        return str(error)
    return ""


def refusal(files: Sequence[tuple[str, int]], cap: int) -> str:
    """Why files of these names and bytes are not taken, "" when they are; ``cap`` is in MiB, for all together.

    The browser itself holds back a file that alone is over the cap, and tells the server nothing of it. So what arrives
    in such a case is a checkpoint without weights.
    """
    size = sum(count for _, count in files)
    if size > cap * _MIB:
        name, most = max(files, key=lambda file: file[1])
        return (
            f"The upload has {size / _MIB:.1f} MiB ({name}: {most / _MIB:.1f} MiB) and the cap is {cap} MiB in all; "
            "type a path instead."
        )
    if not any(PurePosixPath(name).suffix.lower() in _WEIGHTS for name, _ in files):
        several = f"{len(files)} files" if len(files) > 1 else f"only {files[0][0]}"
        return (
            f"The upload holds no weights file ({several} arrived; expected model.safetensors, pytorch_model.bin, ckpt.pt or "
            f"the like). A file over the cap of {cap} MiB is not sent; type a path instead."
        )
    return ""
