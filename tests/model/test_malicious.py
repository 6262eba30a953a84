"""Files that attack or are damaged: one sentence each, nothing runs, nothing is allocated on their word."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from model import uploads
from model.locate import CheckpointError, locate
from model.tokenizer import load_tokenizer
from model.weights import headers, tensors
from tests.model.bad_files import ATTACKS, forged, good, index_through_link

CAP = 70 << 20
DOORS = ("path", "upload")


def open_all(name: str) -> None:
    """All that is read of a checkpoint: headers, tensors, tokenizer."""
    located = locate(name)
    headers(located)
    tensors(located)
    load_tokenizer(located, 256)


@contextmanager
def uploaded(folder: Path) -> Generator[str]:
    """The folder's files as a browser would send them."""
    with ExitStack() as stack:
        files = [(f"{folder.name}/{path.name}", stack.enter_context(path.open("rb"))) for path in sorted(folder.iterdir())]
        upload = uploads.keep(files, limit_bytes=CAP)
    try:
        yield upload.name
    finally:
        uploads.remove(upload.name)


def through(folder: Path, door: str) -> None:
    """Open the folder by its path, or as an upload."""
    if door == "path":
        open_all(str(folder))
    else:
        with uploaded(folder) as name:
            open_all(name)


def refused(folder: Path, door: str) -> str:
    """The sentence that refuses the folder through one of the two doors."""
    with pytest.raises(CheckpointError) as caught:
        through(folder, door)
    return str(caught.value)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_or_damage_is_refused_in_one_sentence_and_nothing_runs(tmp_path: Path, name: str, door: str) -> None:
    write, word = ATTACKS[name]
    folder, canary = tmp_path / "bad", tmp_path / "canary"
    folder.mkdir()
    write(folder, canary)
    sentence = refused(folder, door)
    too_large = door == "upload" and sum(path.stat().st_size for path in folder.iterdir()) > CAP
    assert ("larger than this server's cap of 70 MiB" if too_large else word) in sentence
    assert "\n" not in sentence
    assert len(sentence) < 400
    assert sentence.endswith(".")
    assert not canary.exists()


def test_what_the_attacks_are_made_of_opens_when_it_is_honest(tmp_path: Path) -> None:
    open_all(str(good(tmp_path / "good")))
    (tmp_path / "forged").mkdir()
    forged(16, [16])(tmp_path / "forged", tmp_path)
    assert tensors(locate(str(tmp_path / "forged")))["x"].shape == (16,)
    with uploaded(tmp_path / "good") as name:
        open_all(name)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "meta.pkl"])
def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path, name: str) -> None:
    folder = good(tmp_path / "bad")
    secret = tmp_path / "secret"
    secret.write_text("{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    assert f"{name} is a link that leads out of its folder" in refused(folder, "path")


def test_a_shard_in_a_linked_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    index_through_link(tmp_path / "bad", tmp_path / "canary")
    assert "a.bin is a link that leads out of its folder" in refused(tmp_path / "bad", "path")


def test_a_billion_layers_in_a_config_allocate_nothing(tmp_path: Path) -> None:
    folder = good(tmp_path / "big")
    (folder / "config.json").write_text(json.dumps({"n_layer": 10**9, "vocab_size": 10**12}))
    assert headers(locate(str(folder))).config["n_layer"] == 10**9


MEASURE = """
import sys
from pathlib import Path
from tests.model.test_malicious import CheckpointError, open_all, through

def peak():  # of this process alone: ru_maxrss begins at what the parent had
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

good, big, *bad = sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir())
open_all(str(good))
before = peak()
for folder in [big, *bad]:
    for door in ("path", "upload"):
        try:
            through(folder, door)
            assert folder == big, folder
        except CheckpointError:
            assert folder != big
    print(f"{peak() - before:.0f}", folder.name)
notice = b"x" * (100 << 20)
print(f"{peak() - before:.0f}", "control")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_flat_under_all_attacks_and_under_a_large_honest_file(tmp_path: Path) -> None:
    root = tmp_path / "all"
    good(root / "0-good")
    good(root / "1-large", size=1 << 24)
    for name, (write, _) in ATTACKS.items():
        folder = root / f"2-{name.replace('/', '-')}"
        folder.mkdir()
        write(folder, tmp_path / "canary")
    answer = subprocess.run(
        [sys.executable, "-c", MEASURE, str(root)],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    growth = {line.split(" ", 1)[1]: int(line.split(" ", 1)[0]) for line in answer.stdout.splitlines()}
    assert growth.pop("control") > 90
    assert len(growth) == len(ATTACKS) + 1
    assert max(growth.values()) < 50, growth
    assert not (tmp_path / "canary").exists()
