"""Memory: the estimate against what is really held, the limit, and no growth over many runs."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]

from model.memory import MemoryLimit, Sizes, estimate, memory_limit
from model.request import Prompt, Record, Request
from model.runner import run
from tests.model.toy_networks import write_tiny

ROOT = Path(__file__).resolve().parents[2]
HUGINN = Sizes(width=5280, parameters=3_500_000_000, bytes_per_weight=2)


def test_outputs_of_a_large_run_are_what_the_arithmetic_says() -> None:
    found = estimate(HUGINN, tokens=[512], loops=[32], lenses=0, record=Record(), limit=10**15)
    assert 0.32 < found.stored_bytes / 2**30 < 0.35
    assert found.fits
    assert not found.advice


def test_a_run_over_the_limit_is_told_what_fits() -> None:
    found = estimate(HUGINN, tokens=[4096], loops=[128], lenses=2, record=Record(), limit=2**33)
    assert not found.fits
    assert "statistics only" in found.sentence()
    thin = estimate(HUGINN, tokens=[4096], loops=[128], lenses=0, record=Record(states=False), limit=2**33)
    assert thin.stored_bytes < found.stored_bytes / 100
    for less in (Record(every=8), Record(positions=(0, 64))):
        assert (
            estimate(HUGINN, tokens=[4096], loops=[128], lenses=2, record=less, limit=2**33).stored_bytes < found.stored_bytes
        )


def test_the_estimate_of_what_is_stored_is_close_to_the_arrays(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "tiny")
    for record, lenses in (
        (Record(), ("logit", "coda")),
        (Record(every=3, positions=(1, 4)), ()),
        (Record(states=False), ("logit",)),
    ):
        request = Request(str(folder), (Prompt("Hi there"),), (9,), lenses=lenses, record=record)  # type: ignore[arg-type]
        held = run(request).nbytes
        sizes = Sizes(width=16, parameters=1, bytes_per_weight=4)
        guessed = estimate(sizes, tokens=[8], loops=[9, 9], lenses=len(lenses), record=record, limit=2**40).stored_bytes
        assert held * 0.8 <= guessed <= held * 1.6


def test_the_limit_comes_from_the_environment_or_from_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOPSCOPE_MEMORY_GIB", raising=False)
    assert 0 < memory_limit() < psutil.virtual_memory().total
    monkeypatch.setenv("LOOPSCOPE_MEMORY_GIB", "1.5")
    assert memory_limit() == 3 * 2**29
    monkeypatch.setenv("LOOPSCOPE_MEMORY_GIB", "much")
    with pytest.raises(MemoryLimit, match="give a number of GiB"):
        memory_limit()


_TWENTY_RUNS = """
import ctypes, gc, os, sys
import psutil
from model.request import Prompt, Request
from model.runner import run

def once(seed):
    run(Request(sys.argv[1], (Prompt("x" * 128),), (32,), seed=seed))

def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator only keeps for later is not held by the runs
    return psutil.Process(os.getpid()).memory_info().rss

for seed in range(8):
    once(seed)
before = resident()
for seed in range(20):
    once(seed)
print(resident() / before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="measures with glibc's malloc_trim")
def test_twenty_runs_in_a_row_do_not_grow(tmp_path: Path) -> None:
    """In a process of its own, where nothing but the runs can grow; on Linux, whose allocator can be told to let go."""
    folder = write_tiny(tmp_path / "tiny", changes={"block_size": 128, "n_embd": 64})
    command = [sys.executable, "-c", _TWENTY_RUNS, str(folder)]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert float(found.stdout) < 1.05


_PEAK = """
import re, sys
from pathlib import Path
from model.request import Prompt, Request
from model.runner import run

def once(checkpoint):
    run(Request(checkpoint, (Prompt(ids=(1, 2)),), (2,), lenses=("logit",)))

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

once("demo")
before = peak()
once(sys.argv[1])
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("form", ["safetensors", "pickled"])
def test_loading_300_megabytes_peaks_below_twice_their_size(form: str, tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "big", changes={"vocab_size": 115_000, "n_embd": 512, "n_head": 8})
    weights = folder / "model.safetensors"
    if form == "pickled":
        content = {"model": load_file(weights), "model_args": json.loads((folder / "config.json").read_text())["model_args"]}
        weights.unlink()
        (folder / "config.json").unlink()
        weights = folder / "ckpt.pt"
        torch.save(content, weights)
    size = weights.stat().st_size
    assert size > 300e6
    found = subprocess.run([sys.executable, "-c", _PEAK, str(folder)], check=True, capture_output=True, text=True, cwd=ROOT)
    assert int(found.stdout) < 2 * size
    weights.unlink()
