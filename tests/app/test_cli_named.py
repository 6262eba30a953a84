"""--block, --count, --norm and --head: a model of the transformers library that is looped where a person says."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analysis import study
from app import cli

ALBERT = Path(__file__).resolve().parents[1] / "data" / "albert-tiny"
GROUP = "albert.encoder.albert_layer_groups.0"
READ = "predictions.dense,predictions.activation,predictions.LayerNorm"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def named(*more: str) -> tuple[str, ...]:
    return ("--block", GROUP, "--count", "num_hidden_layers", *more)


def test_a_run_by_names_equals_the_family_run_and_its_request_says_the_names(call: Call, tmp_path: Path) -> None:
    common = ("run", "--checkpoint", ALBERT, "--ids", "5,6,7", "--loops", "3", "--out")
    assert call(*common, tmp_path / "family")[0] == 0
    assert call(*common, tmp_path / "named", *named("--norm", READ, "--head", "predictions.decoder"))[0] == 0
    family, by_name = (study.load(tmp_path / folder) for folder in ("family", "named"))
    own, other = family.trajectories[0].blocks[0], by_name.trajectories[0].blocks[0]
    assert np.array_equal(own.states, other.states)
    assert own.readouts.keys() == other.readouts.keys()
    np.testing.assert_allclose(own.readouts["coda", "entropy"], other.readouts["coda", "entropy"], atol=1e-5)
    assert "named" not in family.request
    assert by_name.request["named"]["block"] == GROUP
    assert study.Request.from_json(by_name.request).named == study.NamedBlock(
        GROUP, count="num_hidden_layers", norm=READ, head="predictions.decoder"
    )


def test_inspect_tells_what_was_named_and_the_memory_of_its_run(call: Call) -> None:
    code, out, _ = call("inspect", ALBERT, "--json", *named(), "--loops", "4", "--tokens", "8")
    values = json.loads(out)
    assert code == 0
    assert (values["architecture"], values["block_names"], values["config_loops"]) == ("named", [GROUP], [6])
    assert values["memory"]["fits"]


@pytest.mark.parametrize("command", ["run", "inspect"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--block", "albert.encoder.albert_layer_group.0"), f"near names: {GROUP}"),
        (("--block", GROUP, "--count", "num_hidden_layer"), "near names: num_hidden_layers"),
        (("--head", "predictions.decoder"), "--head was given without --block"),
        (("--block", GROUP, "--head", "predictions.decoder"), "takes 32; name what lies between them as norm"),
    ],
)
def test_wrong_names_are_one_sentence(call: Call, tmp_path: Path, command: str, words: tuple[str, ...], said: str) -> None:
    rest = ("--checkpoint", ALBERT, "--ids", "5", "--loops", "2", "--out", tmp_path / "run") if command == "run" else (ALBERT,)
    code, out, err = call(command, *rest, *words)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_loops_that_the_model_does_not_run_name_both_numbers(call: Call, tmp_path: Path) -> None:
    words = ("run", "--checkpoint", ALBERT, "--ids", "5", "--loops", "2", "--out", tmp_path / "run", "--block", GROUP)
    code, _, err = call(*words)
    assert code == 2
    assert "ran 6 loops and 2 were asked for. Ask for 6" in err
