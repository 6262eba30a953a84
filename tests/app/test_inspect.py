"""``loopscope inspect``: the card in lines and as JSON, the memory of a run, and bad files in a sentence."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import study
from app import cli
from app.card import card_rows, count_words

PLAIN = Path(__file__).resolve().parents[1] / "data" / "latent_ttc-plain"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main(["inspect", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def lines(out: str) -> dict[str, str]:
    """Label -> value; a value begins where the longest label ends."""
    column = out.index("Two-scale")
    return {line[:column].strip(): line[column:] for line in out.splitlines()}


def test_a_card_in_lines_leaves_blank_what_the_file_does_not_tell(call: Call) -> None:
    code, out, _ = call(PLAIN)
    card = study.card(str(PLAIN))
    said = lines(out)
    assert code == 0
    assert said["Loops trained"] == ""
    assert said["Width"] == str(card.width) == "64"
    assert said["Looped blocks"] == f"1: {card.block_names[0]}"
    assert said["Stored as"] == "float32"
    assert card.digest.startswith(said["Digest"])
    assert said["Predicts"] == "the next token"
    assert "Memory of this run" not in said


def test_a_demo_step_tells_how_deep_training_looped(call: Call) -> None:
    assert lines(call("demo")[1])["Loops trained"] == "8 per block on average"
    assert json.loads(call("demo@0", "--json")[1])["name"] == "demo@0"


def test_the_json_is_the_card_with_the_memory_of_a_run(call: Call) -> None:
    code, out, _ = call(PLAIN, "--json", "--loops", 8, "--tokens", 16)
    values = json.loads(out)
    card = study.card(str(PLAIN))
    asked = study.Request(str(PLAIN), (study.Prompt(ids=(0,) * 16),), (8,))
    needed = study.estimate(asked)
    assert code == 0
    assert (values["digest"], values["loops_trained"], values["block_names"]) == (card.digest, None, list(card.block_names))
    assert values["memory"]["stored_bytes"] == needed.stored_bytes
    assert values["memory"]["fits"] is True
    assert "memory" not in json.loads(call(PLAIN, "--json")[1])


def test_more_loops_take_more_memory(call: Call) -> None:
    few, many = (json.loads(call(PLAIN, "--json", "--loops", n, "--tokens", 64)[1])["memory"]["stored_bytes"] for n in (2, 200))
    assert many > 50 * few
    assert "Memory of this run" in call(PLAIN, "--loops", 2, "--tokens", 64)[1]


def test_the_weights_are_not_loaded(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from model import checkpoint

    def load(*_: object, **__: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(checkpoint, "load", load)
    assert call(PLAIN)[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no/such"], "no/such"),
        (["--loops", "4"], "belong together"),
        (["--tokens", "4"], "belong together"),
        (["--loops", "4", "--tokens", "0"], "1 or more"),
        (["--loops", "4", "--tokens", "5000"], "context"),
        (["--loops", "1,2", "--tokens", "4"], "numbers of loops"),
        (["--loops", "x", "--tokens", "4"], "whole numbers"),
    ],
)
def test_bad_input_is_one_sentence(call: Call, words: list[str], said: str) -> None:
    code, out, err = call(*([] if words[0] == "no/such" else [PLAIN]), *words)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"PK\x03\x04 cut in half", b"\x80\x04."]
)
@pytest.mark.parametrize("name", ["model.safetensors", "ckpt.pt"])
def test_a_damaged_file_is_one_sentence_that_names_it(call: Call, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    code, out, err = call(tmp_path)
    assert (code, out) == (2, "")
    assert name in err
    assert "Traceback" not in err


def test_what_a_card_says_of_other_kinds_of_models() -> None:
    card = study.card("demo")
    said = dict(card_rows(replace(card, objective="masked token", space="normed", config_loops=(2, 4), loops_trained=1.5)))
    assert said["Predicts"] == "masked language model: predicts the token at the same position"
    assert said["Iterates"] == "normed inside the loop"
    assert said["Loops in its config"] == "2, 4"
    assert said["Loops trained"] == "1.5 per block on average"
    assert "Exit gate" not in said
    assert dict(card_rows(replace(card, notes=("Beware.",))))["Note"] == "Beware."
    assert [count_words(n) for n in (999, 1_500_000, 3_510_000_000)] == ["999", "1,500,000 (1.5 M)", "3,510,000,000 (3.5 B)"]
