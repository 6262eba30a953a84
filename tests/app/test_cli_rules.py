"""Exit rules on the command line: the default three, chosen ones, all of them, and every field of each."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import study
from analysis.exit_rule import exit_rules, exits
from analysis.exits.kl import KLExit
from app import cli
from tests.toys import toy_run

Call = Callable[..., tuple[int, str, str]]
GOOD = ("run", "--prompt", "the king", "--loops", "4")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "exits.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_writes_the_default_rules_the_chosen_ones_or_all(call: Call, tmp_path: Path) -> None:
    assert call(*GOOD, "--out", tmp_path / "default")[0] == 0
    assert {row["rule"] for row in rows(tmp_path / "default")} == {"acceleration", "kl", "step_norm"}
    chosen = ("--rules", "fixed_k,entropy", "--threshold", "fixed_k=2")
    assert call(*GOOD, *chosen, "--out", tmp_path / "chosen")[0] == 0
    found = rows(tmp_path / "chosen")
    assert {row["rule"] for row in found} == {"fixed_k", "entropy"}
    assert {row["exit_loop"] for row in found if row["rule"] == "fixed_k"} == {"2"}
    code, _, said = call(*GOOD, "--rules", "all", "--out", tmp_path / "all")
    assert code == 0
    assert {row["rule"] for row in rows(tmp_path / "all")} == set(exit_rules())
    # What the rules read is recorded because they were chosen; what the model does not have is said, per block.
    assert "no learned exit gate" in said
    assert "--record" not in said
    exits = {row["rule"] for row in rows(tmp_path / "all") if row["exit_loop"]}
    assert exits == set(exit_rules()) - {"learned_gate"}


def test_further_quantities_are_recorded_where_they_are_asked_for(call: Call, tmp_path: Path) -> None:
    assert call(*GOOD, "--record", "kl_reverse, min_p_kl", "--out", tmp_path / "run")[0] == 0
    recorded = {quantity for _, quantity in study.load(tmp_path / "run").trajectories[0].blocks[-1].readouts}
    assert {"kl_reverse", "min_p_kl"} <= recorded
    code, _, error = call(*GOOD, "--record", "nothing", "--out", tmp_path / "other")
    assert code == 2
    assert "nothing" in error


def test_fields_of_a_rule_reach_the_exported_chart(call: Call, tmp_path: Path) -> None:
    run = toy_run()
    study.save(run, tmp_path / "run")
    options = (
        "--rules",
        "kl",
        "--rule",
        "kl.scope=sequence",
        "--rule",
        "kl.lens=logit",
        "--threshold",
        "kl=0.05",
        "--token",
        "1",
    )
    words = ("--chart", "rule", "--format", "csv", "--out", tmp_path / "f")
    code, _, _ = call("export", "--run", tmp_path / "run", *words, *options)
    assert code == 0
    (path,) = (tmp_path / "f").glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        found = {row["exit_loop"] for row in csv.DictReader(file) if row.get("exit_loop")}
    rule = KLExit(threshold=0.05, scope="sequence", lens="logit")
    assert found == {str(int(exits(rule, run.trajectories[0], 0).loop[1]))}


def test_the_list_of_rules_says_what_each_does(call: Call) -> None:
    lines = call("list", "rules")[1].splitlines()
    assert [line.split()[0] for line in lines] == list(exit_rules())
    for line, kind in zip(lines, exit_rules().values(), strict=True):
        for words in ("Stops", kind.formula, f"default τ = {kind().threshold:g}", kind.source):
            assert words in line
        assert ("Not causal" in line) != kind.causal


def said(error: str) -> list[str]:
    """What the command says beside its progress."""
    return [line for line in error.splitlines() if line.startswith("loopscope:")]


def test_rules_that_too_few_loops_disable_are_named_with_the_reason(call: Call, tmp_path: Path) -> None:
    words = ("--patience", "step_norm=20", "--minimum-loops", "kl=9", "--out", tmp_path / "run")
    code, out, error = call(*GOOD, *words)
    assert code == 0
    assert said(error) == [
        "loopscope: KL of successive readouts can never fire here: minimum loops 9 exceed the 4 loops.",
        "loopscope: step norm can never fire here: patience 20 exceeds the 4 loops.",
    ]
    assert "step norm (step_norm)" in out
    assert {row["exit_loop"] for row in rows(tmp_path / "run") if row["rule"] == "step_norm"} == {"never"}
    code, _, error = call("run", "--prompt", "the king", "--loops", "1", "--out", tmp_path / "one")
    assert code == 0
    assert said(error) == [
        f"loopscope: {title} is undefined here: its first score is that of loop 2, and the run has 1 loop."
        for title in ("acceleration", "KL of successive readouts")
    ] + ["loopscope: step norm can never fire here: minimum loops 2 exceed the 1 loop."]


def test_an_exported_chart_names_the_setting_that_is_in_the_way(call: Call, tmp_path: Path) -> None:
    study.save(toy_run(), tmp_path / "run")
    words = ("export", "--run", tmp_path / "run", "--chart", "rule", "--format", "csv", "--out", tmp_path / "f")
    code, _, error = call(*words, "--rules", "step_norm", "--patience", "step_norm=20")
    assert code == 0
    assert said(error) == ["loopscope: step norm can never fire here: patience 20 exceeds the 8 loops."]
    assert said(call(*words)[2]) == []


def test_positions_past_the_prompt_are_said(call: Call, tmp_path: Path) -> None:
    code, _, error = call("run", "--ids", "5,6,7,8,9", "--loops", "4", "--tokens", "3:99", "--out", tmp_path / "run")
    assert code == 0
    (line,) = said(error)
    assert line.endswith("--tokens 3:99 was given and prompt 0 has 5 tokens; states of positions 3 to 4 were stored.")
    assert study.load(tmp_path / "run").trajectories[0].blocks[0].positions.tolist() == [3, 4]
    code, _, error = call("run", "--ids", "5,6,7,8,9", "--loops", "4", "--tokens", "3:5", "--out", tmp_path / "fits")
    assert said(error) == []
