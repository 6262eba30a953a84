"""Checkpoint folders that attack or are damaged, one function each; not collected by pytest.

Every function writes one folder. A payload, where there is one, would make the file ``canary``.
"""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]

Writer = Callable[[Path, Path], None]


class Payload:
    """Would run a shell command where a pickle of it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return (os.system, (f"touch {self.canary}",))  # pyright: ignore[reportDeprecated]


def good(folder: Path, *, size: int = 4) -> Path:
    """A folder that opens, to begin from; ``size`` numbers in one of its tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"a": torch.ones(4, 4), "b": torch.ones(size)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return folder


def pickled(name: str, **options: Any) -> Writer:
    """A file of torch.save, under any name, whose content would run code."""

    def write(folder: Path, canary: Path) -> None:
        torch.save({"model": {"a": torch.ones(2)}, "config": Payload(canary)}, folder / name, **options)

    return write


def bare_pickle(name: str, protocol: int) -> Writer:
    """A pickle without torch's frame around it."""

    def write(folder: Path, canary: Path) -> None:
        (folder / name).write_bytes(pickle.dumps({"model": Payload(canary)}, protocol=protocol))

    return write


def beside_good(name: str, protocol: int) -> Writer:
    """A payload in a file beside weights that are fine."""

    def write(folder: Path, canary: Path) -> None:
        good(folder)
        bare_pickle(name, protocol)(folder, canary)

    return write


def shard(folder: Path, canary: Path) -> None:
    """The second shard would run code."""
    torch.save({"a": torch.ones(2)}, folder / "one.bin")
    torch.save({"b": Payload(canary)}, folder / "two.bin")
    index(folder, {"a": "one.bin", "b": "two.bin"})


def index(folder: Path, weight_map: dict[str, str]) -> None:
    """The index of a sharded checkpoint."""
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))


def index_leading_out(shard_name: str) -> Writer:
    """An index whose shard lies outside its folder."""

    def write(folder: Path, canary: Path) -> None:
        torch.save({"a": torch.ones(2)}, folder.parent / "outside.bin")
        index(folder, {"a": shard_name})

    return write


def index_through_link(folder: Path, canary: Path) -> None:
    """An index whose shard lies in a linked folder."""
    outside = folder.parent / "outside"
    outside.mkdir()
    torch.save({"a": torch.ones(2)}, outside / "a.bin")
    (folder / "sub").symlink_to(outside)
    index(folder, {"a": "sub/a.bin"})


def header(length: int, text: dict[str, Any] | bytes, data: int = 64) -> Writer:
    """A safetensors file with any header length and any header."""

    def write(folder: Path, canary: Path) -> None:
        raw = text if isinstance(text, bytes) else json.dumps(text).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", length or len(raw)) + raw + bytes(data))

    return write


def entry(shape: list[int], start: int, stop: int) -> dict[str, Any]:
    """One tensor of a safetensors header."""
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, stop]}


def forged(size: int, shape: list[int], *, compression: int = zipfile.ZIP_STORED, padding: int = 0) -> Writer:
    """A file of torch.save whose pickle claims a storage of ``size`` numbers and a tensor of any shape."""

    def number(value: int) -> bytes:
        return b"\x8a\x08" + struct.pack("<q", value)

    def write(folder: Path, canary: Path) -> None:
        plain = io.BytesIO()
        torch.save({"x": torch.ones(16)}, plain)
        tensor = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000"
        tensor += b"X\x03\x00\x00\x00cpu" + number(size) + b"tQK\x00(" + b"".join(map(number, shape)) + b"t("
        tensor += b"".join(number(1) for _ in shape) + b"t\x89ccollections\nOrderedDict\n)RtR"
        with zipfile.ZipFile(plain) as old, zipfile.ZipFile(folder / "ckpt.pt", "w", compression) as new:
            for member in old.infolist():
                data = old.read(member)
                if member.filename.endswith("/data.pkl"):
                    data = b"\x80\x02}X\x01\x00\x00\x00x" + tensor + b"s."
                new.writestr(member.filename, data + bytes(padding))

    return write


def many_dicts(folder: Path, canary: Path) -> None:
    """A pickle of 20 MB that would build 20 million dicts."""
    with zipfile.ZipFile(folder / "ckpt.pt", "w") as new:
        new.writestr("x/data.pkl", b"\x80\x02(" + b"}" * (20 << 20) + b"t.")
        new.writestr("x/version", b"3\n")


def many_dicts_old_format(folder: Path, canary: Path) -> None:
    """The same in the older format."""
    (folder / "ckpt.pt").write_bytes(b"\x80\x02(" + b"}" * (20 << 20) + b"t.")


def object_scalar(folder: Path, canary: Path) -> None:
    """A numpy scalar of kind object, which holds a pickle of its own."""
    raw = b"cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(X\x01\x00\x00\x00OK\x00K\x01tRX\x01\x00\x00\x00atR"
    with zipfile.ZipFile(folder / "ckpt.pt", "w") as new:
        new.writestr("x/data.pkl", b"\x80\x02}X\x01\x00\x00\x00x" + raw + b"s.")
        new.writestr("x/version", b"3\n")


def numpy_array(folder: Path, canary: Path) -> None:
    """An array of objects, which numpy restores by unpickling."""
    torch.save({"model": {"a": torch.ones(1)}, "x": np.array([Payload(canary)], dtype=object)}, folder / "ckpt.pt")


def sparse_file(name: str, size: int, start: bytes = b"") -> Writer:
    """A file of any size that takes no room on the disk, beside weights that are fine."""

    def write(folder: Path, canary: Path) -> None:
        good(folder)
        with (folder / name).open("wb") as file:
            file.write(start)
            file.truncate(size)

    return write


def huge_settings(folder: Path, canary: Path) -> None:
    """A small tokenizer with huge settings beside it."""
    sparse_file("tokenizer_config.json", 200 << 20)(folder, canary)
    (folder / "tokenizer.json").write_text("{}")


def text(name: str, content: str) -> Writer:
    """A text file beside weights that are fine."""

    def write(folder: Path, canary: Path) -> None:
        good(folder)
        (folder / name).write_text(content)

    return write


def cut(name: str, keep: float) -> Writer:
    """A file of which only the beginning was copied."""

    def write(folder: Path, canary: Path) -> None:
        path = folder / name
        tensors = {"a": torch.ones(64, 64)}
        (save_file if name.endswith(".safetensors") else torch.save)(tensors, path)  # type: ignore[operator]
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])

    return write


def bomb_behind_a_prefix(folder: Path, canary: Path) -> None:
    """A zip archive where a pickle of the older format begins, to be judged by the wrong one."""
    many_dicts_old_format(folder, canary)
    with zipfile.ZipFile(folder / "ckpt.pt", "a") as new:
        new.writestr("x/data.pkl", b"\x80\x02}.")


def script(folder: Path, canary: Path) -> None:
    """A TorchScript archive, by its members."""
    with zipfile.ZipFile(folder / "model.pt", "w") as new:
        for name in ("data.pkl", "constants.pkl", "code/__torch__.py", "version"):
            new.writestr(f"model/{name}", b"\x80\x02}.")


LONG = "a\n" * 5000
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
F32 = entry([4], 0, 16)

# name -> (writer, a word of the sentence that refuses it)
ATTACKS: dict[str, tuple[Writer, str]] = {
    **{f"payload in {name}": (pickled(name), "wants to import") for name in ("ckpt.pt", "x.pth", "x.bin", "x.ckpt")},
    "payload in pytorch_model.bin": (pickled("pytorch_model.bin"), "wants to import"),
    "payload, older format": (pickled("ckpt.pt", _use_new_zipfile_serialization=False), "wants to import"),
    "payload named safetensors": (pickled("model.safetensors"), "pickled file, no safetensors"),
    "bare payload named safetensors": (bare_pickle("x.safetensors", 4), "pickled file, no safetensors"),
    "bare payload, protocol 0": (
        bare_pickle("ckpt.pt", 0),
        "plain pickle, no file of torch.save, and wants to import posix.system",
    ),
    "bare payload, protocol 2": (
        bare_pickle("ckpt.pt", 2),
        "plain pickle, no file of torch.save, and wants to import posix.system",
    ),
    "bare payload, protocol 4": (
        bare_pickle("ckpt.pt", 4),
        "plain pickle, no file of torch.save, and wants to import posix.system",
    ),
    "payload as shard": (shard, "two.bin cannot be loaded safely: it wants to import"),
    "payload in meta.pkl": (beside_good("meta.pkl", 2), "GLOBAL posix system"),
    "payload in meta.pkl, protocol 4": (beside_good("meta.pkl", 4), "STACK_GLOBAL"),
    "scalar of objects": (object_scalar, "cannot be loaded safely"),
    "array of objects": (numpy_array, "holds a numpy value of kind 'O8'"),
    "index up": (index_leading_out("../outside.bin"), "names the shard '../outside.bin'"),
    "index absolute": (index_leading_out("/etc/passwd"), "names the shard '/etc/passwd'"),
    "index null byte": (index_leading_out("a\0.bin"), "names the shard"),
    "header of 2^60 bytes": (header(2**60, {"a": F32}), "claims 1152921504606846976 bytes"),
    "header of 2^63 bytes": (header(2**64 - 1, {"a": F32}), "claims 18446744073709551615 bytes"),
    "header past the file": (header(500, {"a": F32}), "its header claims 500 bytes"),
    "offsets past the file": (header(0, {"a": entry([2**40], 0, 2**42)}), "no safetensors file that can be read"),
    "offsets overlap": (header(0, {"a": F32, "b": entry([4], 8, 24)}), "no safetensors file that can be read"),
    "shape overflows": (header(0, {"a": entry([2**62, 8], 0, 64)}), "no safetensors file that can be read"),
    "header is no JSON": (header(0, b"{" * 4000), "no safetensors file that can be read"),
    "huge tensor": (forged(10**12, [10**6, 10**6]), "claims shape (1000000, 1000000)"),
    "tensor past its storage": (forged(16, [10**9]), "claims shape (1000000000,)"),
    "tensor past its storage, within the file": (forged(16, [100]), "cannot be loaded safely"),
    "negative size": (forged(-1, [2]), "cannot be loaded safely"),
    "zip bomb": (forged(16, [16], compression=zipfile.ZIP_DEFLATED, padding=1 << 24), "unpacks to more than it holds"),
    "twenty million dicts": (many_dicts, "more than 16 MB beside its weights"),
    "twenty million dicts, older format": (many_dicts_old_format, "cannot be loaded safely"),
    "two formats in one file": (bomb_behind_a_prefix, "cannot be loaded safely"),
    "huge tokenizer.json": (sparse_file("tokenizer.json", 200 << 20, b'{"version":"1.0",'), "has 200 MB; expected at most 64"),
    "huge tokenizer_config.json": (huge_settings, "tokenizer_config.json has 200 MB"),
    "huge meta.pkl": (sparse_file("meta.pkl", 200 << 20, b"\x80\x04"), "meta.pkl has 200 MB"),
    "huge config.json": (sparse_file("config.json", 200 << 20, b"{"), "config.json has 200 MB; expected at most 4"),
    "deep config.json": (text("config.json", '{"a":' * 100_000), "nested too deep"),
    "deep tokenizer.json": (text("tokenizer.json", "[" * 100_000), "no tokenizer that can be read"),
    "config.json is a list": (text("config.json", "[]"), "holds a list"),
    "no weight_map": (text("model.safetensors.index.json", "{}"), "has no weight_map"),
    "pointer for a config": (text("config.json", LFS), "config.json is a Git LFS pointer"),
    "pointer for a tokenizer": (text("tokenizer.json", LFS), "tokenizer.json is a Git LFS pointer"),
    "pointer for an alphabet": (text("meta.pkl", LFS), "meta.pkl is a Git LFS pointer"),
    "names of many lines": (header(0, {LONG: F32, f"module.{LONG}": entry([4], 16, 32)}, data=32), "holds a\\na\\n"),
    "wrong under a long name": (header(0, {LONG: entry([2**40], 0, 16)}, data=16), "no safetensors file that can be read"),
    "pointer": (text("model.safetensors", LFS), "is a Git LFS pointer"),
    "empty": (text("model.safetensors", ""), "is empty (0 bytes)"),
    "noise": (text("model.safetensors", "x" * 100), "no safetensors file that can be read"),
    "half a safetensors": (cut("model.safetensors", 0.5), "no safetensors file that can be read"),
    "nine bytes of a safetensors": (cut("model.safetensors", 0.001), "no safetensors file that can be read"),
    "half a ckpt.pt": (cut("ckpt.pt", 0.5), "ckpt.pt"),
    "almost a ckpt.pt": (cut("ckpt.pt", 0.99), "ckpt.pt"),
    "TorchScript": (script, "TorchScript"),
}
