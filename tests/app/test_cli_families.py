"""The command line on every reference checkpoint: identified, run, and the same numbers by path and by upload."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from analysis import study
from app import cli
from model.capture.trajectory import load_run
from tests.model.zoo import DATA, NATIVE, Reference, named

LIBRARY = (Reference("albert-tiny", "albert"), Reference("dory-tiny", "dory"))
every = pytest.mark.parametrize("reference", [*NATIVE, *LIBRARY], ids=named)


@every
def test_run_and_inspect_name_the_family(reference: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "run",
        "--checkpoint",
        reference.path,
        "--prompt",
        "KING RICHARD:\nO, ",
        "--loops",
        "32",
        "--out",
        str(tmp_path / "run"),
    ]
    assert cli.main(arguments) == 0
    trajectory = load_run(tmp_path / "run").trajectories[0]
    assert trajectory.provenance.architecture == reference.family
    assert trajectory.token_ids.tolist() == list(b"KING RICHARD:\nO, ")
    for block in trajectory.blocks:
        assert block.states.shape[:2] == (33, 17)
        assert np.isfinite(block.step_norm).all()
    assert (tmp_path / "run" / "exits.csv").read_text(encoding="utf-8").count("\n") > 17
    capsys.readouterr()
    assert cli.main(["inspect", reference.path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["architecture"] == reference.family
    assert told["digest"] == trajectory.provenance.digest


@every
def test_an_upload_gives_the_same_numbers_as_its_path(reference: Reference) -> None:
    files = [path for path in (DATA / reference.folder).iterdir() if not path.name.startswith("golden")]
    upload = study.keep_upload(
        [(f"{reference.folder}/{path.name}", io.BytesIO(path.read_bytes())) for path in files], limit_bytes=2**24
    )
    try:
        prompt = (study.Prompt(ids=tuple(b"To be")),)
        one, two = (study.run(study.Request(name, prompt, (4,))).trajectories[0] for name in (reference.path, upload.name))
    finally:
        study.remove_upload(upload.name)
    assert one.provenance.digest == two.provenance.digest
    for a, b in zip(one.blocks, two.blocks, strict=True):
        assert np.array_equal(a.states, b.states)
        assert all(np.array_equal(a.readouts[key], b.readouts[key], equal_nan=True) for key in a.readouts)
    with pytest.raises(study.CheckpointError, match="upload it again"):
        study.card(upload.name)
