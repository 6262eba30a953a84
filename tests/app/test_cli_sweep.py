"""``loopscope sweep``: table and charts of a text, resumed without running a window twice, refusals in a sentence."""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import study
from analysis.comparison import EQUAL_TERMS, LAST_BLOCK, compare
from analysis.exit_rule import exit_rules
from analysis.goal import Budget, Near, Quality, reach, read_goal
from analysis.sweep_table import SWEEP_HEADER
from app import arguments, cli
from tests.toys import toy_trajectory

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main(["sweep", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("The old king opened the little door, and there stood a man who said to him, nothing. " * 6)
    return path


class Runs:
    """Stands for study.run: made-up windows, counted; ``stop_at`` presses Ctrl-C in place of that run."""

    def __init__(self) -> None:
        self.count = 0
        self.stop_at = -1

    def __call__(self, request: study.Request, **_: Any) -> study.Run:
        if self.count == self.stop_at:
            raise KeyboardInterrupt
        self.count += 1
        ids = request.prompts[0].ids
        assert ids is not None
        made = toy_trajectory(loops=request.loops[0], tokens=len(ids), seed=sum(ids) % 97)
        return study.Run(request=request.to_json(), trajectories=(made,))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs()
    monkeypatch.setattr(study, "run", made)
    return made


SMALL = ("--tokens", 48, "--window", 8, "--loops", 5, "--points", 4, "--format", "csv")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_calibrated_rules_run_live_beside_their_post_hoc_reading(call: Call, tmp_path: Path) -> None:
    folder = Path(__file__).parent.parent / "data" / "huginn-real"
    words, held = tmp_path / "text.txt", tmp_path / "held.txt"
    words.write_text("KING RICHARD: O, the man", encoding="utf-8")
    held.write_text("And so the lord of York came", encoding="utf-8")
    asked = ("--checkpoint", folder, "--text", words, "--held-out", held, "--tokens", 20, "--window", 10, "--loops", 5)
    rules = ("--rules", "fixed_k,kl,oracle_argmax", "--calibrate", "budget=3", "--points", 4, "--format", "csv")
    code, out, error = call(*asked, *rules, "--live", "--out", tmp_path / "out")
    assert code == 0
    assert "Live, leaving this block alone early" in out
    assert "oracle_argmax is left out live: The rule" in error
    fixed, kl = rows(tmp_path / "out" / "live.csv")
    assert (fixed["rule"], fixed["live_loops"], fixed["equal_exits"], fixed["tokens"]) == ("fixed_k", "3.0", "1.0", "20")
    assert (fixed["stops"], fixed["threshold"], fixed["mode"], fixed["loops"], fixed["lens"]) == (
        ">=",
        "3.0",
        "live",
        "5",
        "coda",
    )
    assert "fixed k (fixed_k)" in out[out.index("Live, leaving") :]
    progress = [line for line in error.splitlines() if line.startswith("fixed k")]
    assert progress[-1] == "fixed k ≥ 3 loops, threshold 1 of 3: decoding, 20 of 20 tokens"
    assert f"KL of successive readouts < {float(kl['threshold']):.4g} nats, threshold 2 of 3: decoding, 0 of 20 tokens" in error
    assert len([line for line in progress if "decoding" in line]) == 5  # not one per token where there is no terminal
    assert kl["rule"] == "kl"
    assert 2 <= float(kl["live_loops"]) <= 3.5
    assert float(kl["live_cross_entropy"]) > 0
    assert float(kl["tokens_per_second"]) > 0


def test_a_stopped_live_part_goes_on_with_the_window_it_was_at(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(__file__).parent.parent / "data" / "huginn-real"
    words, out = tmp_path / "text.txt", tmp_path / "out"
    words.write_text("KING RICHARD: O, the man", encoding="utf-8")
    asked = (
        "--checkpoint",
        folder,
        "--text",
        words,
        "--tokens",
        20,
        "--window",
        10,
        "--loops",
        5,
        "--points",
        4,
        "--format",
        "csv",
    )
    rules = ("--rules", "fixed_k,step_norm", "--calibrate", "budget=3", "--live", "--out", out)
    made: list[str] = []
    really = study.generate

    def generate(request: Any, decoding: Any, exit_: Any, **told: Any) -> Any:
        if len(made) == 3:
            made.append("stopped")
            raise KeyboardInterrupt
        made.append(exit_.words)
        return really(request, decoding, exit_, **told)

    monkeypatch.setattr(study, "generate", generate)
    code, _, error = call(*asked, *rules)
    assert code == 130
    assert "kept the live windows that are done" in error
    assert not (out / "live.csv").exists()
    first = made[:3]
    code, _, _ = call(*asked, *rules)
    assert code == 0
    assert len(made) == 5  # one window of the second rule, of two rules with two windows each
    assert [word.split(" (")[0] for word in [*first, made[4]]] == ["fixed k", "fixed k", "step norm", "step norm"]
    before = rows(out / "live.csv")
    code, _, _ = call(*asked, *rules)
    assert code == 0
    assert len(made) == 5
    assert rows(out / "live.csv") == before  # the milliseconds too: they were measured once


def test_the_bundled_demo_for_real(call: Call, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = (
        "--tokens",
        60,
        "--window",
        10,
        "--loops",
        4,
        "--points",
        4,
        "--rules",
        "kl,step_norm,fixed_k",
        "--format",
        "pdf,csv",
        "--out",
        out,
    )
    code, said, _ = call("--text", text, *options)
    assert code == 0
    assert EQUAL_TERMS in said
    assert LAST_BLOCK in said
    found = rows(out / "sweep.csv")
    assert tuple(found[0]) == SWEEP_HEADER
    assert {row["rule"] for row in found} == {"kl", "step_norm", "fixed_k"}
    assert all(row["lens"] == "coda" and row["prompts"] == "6" and row["tokens"] == "54" for row in found)
    strict = [row for row in found if row["origin"] == "swept" and row["mean_loops"] == "4.0"]
    assert {row["rule"] for row in strict} >= {"kl", "step_norm"}
    by_rule = {row["rule"]: float(row["flops"]) for row in strict}
    assert by_rule["kl"] > by_rule["step_norm"] == 1.0  # a readout after every loop is paid
    assert not list(out.glob("*.svg"))
    for shape in ("cross_entropy-mean_loops", "agreement-mean_loops", "cross_entropy-flops"):
        assert (out / f"pareto-{shape}-icml2024.pdf").read_bytes().startswith(b"%PDF")
        assert any(row["rule"] == "fixed_k" for row in rows(out / f"pareto-{shape}.csv") if "rule" in row)


def test_the_table_reads_back_exactly(call: Call, runs: Runs, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert call("--text", text, *SMALL, "--rules", "kl,entropy,step_norm", "--out", out)[0] == 0
    windows = [study.load(part).trajectories[0] for part in sorted((out / "parts").glob("0*"))]
    assert len(windows) == runs.count == 6
    flops = study.card("demo").flops
    for row in rows(out / "sweep.csv"):
        again = compare(exit_rules()[row["rule"]](**{"threshold": float(row["threshold"])}), windows, 2, flops=flops)
        for name in ("mean_loops", "cross_entropy", "agreement", "divergence", "flops", "never"):
            assert float(row[name]) == pytest.approx(getattr(again, name), rel=1e-12), (row["rule"], name)
        assert row["premature"] == "" or 0 <= float(row["premature"]) <= 1
        assert float(row["gap_lower"]) <= float(row["gap"]) <= float(row["gap_upper"])
        assert (row["cross_entropy_lower"] == "") == (row["origin"] == "given")
    counts = rows(out / "histogram.csv")
    assert sum(int(row["tokens"]) for row in counts if row["rule"] == "kl") == 6 * 7


def test_an_interrupted_sweep_goes_on_and_runs_nothing_twice(call: Call, runs: Runs, text: Path, tmp_path: Path) -> None:
    options = ("--text", text, *SMALL, "--rules", "step_norm", "--out", tmp_path / "out")
    runs.stop_at = 4
    code, out, error = call(*options)
    assert (code, out) == (130, "")
    assert "kept 4 windows" in error
    runs.stop_at = -1
    assert call(*options)[0] == 0
    assert runs.count == 6
    whole = (tmp_path / "out" / "sweep.csv").read_bytes()
    assert call(*options)[0] == 0
    assert runs.count == 6  # all are there
    assert (tmp_path / "out" / "sweep.csv").read_bytes() == whole
    other = ("--text", text, *SMALL, "--rules", "kl", "--points", 3, "--out", tmp_path / "out")
    code, _, error = call(*other)
    assert code == 2
    assert "has results of step_norm, which --rules leaves out" in error
    assert call(*other, "--overwrite")[0] == 0
    assert runs.count == 6  # other rules and points need no other run
    options = (*options, "--overwrite")
    damaged = tmp_path / "out" / "parts" / "0002" / "prompt-0000.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-7])
    assert call(*options)[0] == 0
    assert runs.count == 7
    assert (tmp_path / "out" / "sweep.csv").read_bytes() == whole


def test_windows_of_another_request_are_not_mixed(call: Call, runs: Runs, text: Path, tmp_path: Path) -> None:
    out = ("--rules", "step_norm", "--out", tmp_path / "out")
    assert call("--text", text, *SMALL, *out)[0] == 0
    code, _, error = call("--text", text, *SMALL, "--seed", 1, *out)
    assert code == 2
    assert "another request (seed: there 0, here 1)" in error
    assert runs.count == 6
    assert call("--text", text, *SMALL, "--seed", 1, "--overwrite", *out)[0] == 0
    assert runs.count == 12


def test_a_folder_with_other_files_is_left_alone(call: Call, runs: Runs, text: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "parts").mkdir(parents=True)
    (tmp_path / "out" / "parts" / "thesis.txt").write_text("mine")
    code, _, error = call("--text", text, *SMALL, "--overwrite", "--out", tmp_path / "out")
    assert code == 2
    assert "no windows" in error
    assert (tmp_path / "out" / "parts" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(("goal", "kind"), [("quality=0.01", Quality), ("budget=3", Budget)])
def test_a_threshold_is_found_on_one_text_and_reported_on_another(
    call: Call, runs: Runs, text: Path, tmp_path: Path, goal: str, kind: type
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("Once upon a time a fox went into the wood and found there a house of stone and glass. " * 6)
    words = ("--calibrate", goal, "--held-out", other, "--rules", "step_norm,top_probability", "--out", tmp_path / "out")
    code, out, _ = call("--text", text, *SMALL, *words)
    assert code == 0
    assert runs.count == 12
    assert isinstance(read_goal(goal), kind)
    table = out[out.index("Calibrated") :].splitlines()
    assert table[0] == f"Calibrated to {read_goal(goal).words()}:"
    for line in table[2:4]:
        assert line.split()[-1] in ("yes", "no")
        assert (float(line.split()[-6]) <= 3) or kind is Quality
    assert [line.split("  ")[0] for line in table[2:4]] == ["step norm (step_norm)", "largest probability (top_probability)"]


def test_the_goal_is_met_with_the_fewest_or_the_most_loops() -> None:
    windows = [toy_trajectory(loops=6, tokens=9, seed=seed) for seed in range(6)]
    rule = exit_rules()["fixed_k"]()
    budget = reach(rule, windows, 2, goal=Budget(3.5)).calibration
    assert budget is not None
    assert budget.mean_loops == 3
    losses = [compare(exit_rules()["fixed_k"](**{"threshold": float(k)}), windows, 2).cross_entropy for k in range(1, 7)]
    share = 0.002
    first = 1 + next(k for k, loss in enumerate(losses) if loss <= losses[-1] * (1 + share))
    quality = reach(rule, windows, 2, goal=Quality(share)).calibration
    assert quality is not None
    assert quality.mean_loops == first
    near = reach(rule, windows, 2, goal=Near(3.6)).calibration
    assert near is not None
    assert near.mean_loops == 4
    late = exit_rules()["fixed_k"](**{"minimum_loops": 3})
    assert reach(late, windows, 2, goal=Budget(2.0)).calibration is None
    assert reach(rule, windows, 0, goal=Quality(0.1)).calibration is None  # no quality on an inner block


def test_an_inner_block_has_exits_and_no_quality(call: Call, runs: Runs, text: Path, tmp_path: Path) -> None:
    code, out, error = call("--text", text, *SMALL, "--looped-block", 0, "--rules", "step_norm", "--out", tmp_path / "out")
    assert code == 0
    assert "no quality" in out
    assert "no chart of cross_entropy" in error
    found = rows(tmp_path / "out" / "sweep.csv")
    assert all(row["cross_entropy"] == row["gap"] == "" and np.isfinite(float(row["flops"])) for row in found)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--live",), "--live was given without --calibrate"),
        (("--window", 5000), "--window 5000 was given and the model's context is 128 tokens"),
        (("--looped-block", 7), "blocks 0 to 2"),
        (("--rules", "nothing"), "choose from"),
        (("--rules", "learned_gate"), "needs a learned exit gate"),
        (("--calibrate", "speed=3"), "quality=SHARE"),
        (("--calibrate", "budget=zero"), "quality=SHARE"),
        (("--held-out", "x.txt"), "--calibrate"),
        (("--tokens", 1), "at least 2"),
        (("--window", 1), "at least 2"),
        (("--points", 1), "at least 2"),
        (("--format", "docx"), "choose from pdf"),
    ],
)
def test_refusals_are_one_sentence(
    call: Call, runs: Runs, text: Path, tmp_path: Path, words: tuple[Any, ...], sentence: str
) -> None:
    code, _, error = call("--text", text, *SMALL, *words, "--out", tmp_path / "out")
    assert code == 2
    assert sentence in error
    assert error.count("Traceback") == 0


def test_a_rule_that_the_model_cannot_answer_is_left_out_and_named(call: Call, runs: Runs, text: Path, tmp_path: Path) -> None:
    code, _, error = call("--text", text, *SMALL, "--rules", "learned_gate,kl", "--out", tmp_path / "out")
    assert code == 0
    assert "learned_gate is left out" in error
    assert {row["rule"] for row in rows(tmp_path / "out" / "sweep.csv")} == {"kl"}


def test_a_rule_for_a_gate_that_the_model_lacks_is_refused_before_anything_runs(
    call: Call, runs: Runs, text: Path, tmp_path: Path
) -> None:
    code, _, error = call("--text", text, *SMALL, "--rules", "learned_gate", "--out", tmp_path / "out")
    assert code == 2
    assert "learned_gate needs a learned exit gate and Two-scale looped GPT has none" in error
    assert runs.count == 0
    code, _, error = call("--text", text, *SMALL, "--rules", "step_norm,learned_gate", "--out", tmp_path / "out")
    assert code == 0
    assert "learned_gate is left out: Two-scale looped GPT has no learned exit gate" in error


@pytest.mark.parametrize("blank", ["", " \n\t\n  "])
@pytest.mark.parametrize("option", ["--text", "--held-out"])
def test_a_text_without_words_is_refused(call: Call, runs: Runs, text: Path, tmp_path: Path, blank: str, option: str) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text(blank)
    words = ("--text", empty) if option == "--text" else ("--text", text, "--calibrate", "budget=3", option, empty)
    code, _, error = call(*words, *SMALL, "--out", tmp_path / "out")
    assert code == 2
    assert f"{empty} holds {'white space alone' if blank else 'nothing'}; give a text with words in it." in error
    assert runs.count == 0


def test_more_than_there_is_is_said(call: Call, runs: Runs, text: Path, tmp_path: Path) -> None:
    options = ("--window", 8, "--loops", 5, "--points", 4, "--format", "csv", "--rules", "step_norm")
    code, _, error = call("--text", text, "--tokens", 9000, *options, "--calibrate", "budget=99", "--out", tmp_path / "out")
    assert code == 0
    assert "fewer than --tokens 9000; all are used." in error
    assert "--calibrate budget=99 was given and the run has 5 loops, so that every threshold meets it; give fewer." in error
    code, _, error = call("--text", text, *SMALL, "--rules", "step_norm", "--calibrate", "budget=5", "--out", tmp_path / "fits")
    assert "give fewer" not in error
    assert "--tokens" not in error


def test_one_window_ranks_no_rule(call: Call, runs: Runs, text: Path, tmp_path: Path) -> None:
    options = ("--tokens", 20, "--window", 20, "--loops", 5, "--points", 4, "--format", "csv", "--rules", "kl,step_norm")
    code, out, _ = call("--text", text, *options, "--out", tmp_path / "out")
    assert code == 0
    assert "gap and gain are blank and no rule is ranked: an interval resamples at least 5 windows, and there is 1;" in out
    assert "needs 5 prompts, has 1" in out
    found = rows(tmp_path / "out" / "sweep.csv")
    assert all(row["gap"] == row["gain"] == row["gap_lower"] == "" and row["cross_entropy"] for row in found)


def test_rules_without_any_exit_are_named(call: Call, runs: Runs, text: Path, tmp_path: Path) -> None:
    words = ("--rules", "kl,fixed_k", "--patience", "kl=6", "--out", tmp_path / "out")
    code, _, error = call("--text", text, *SMALL, *words)
    assert code == 0
    assert "loopscope: KL of successive readouts can never fire here: patience 6 exceeds the 5 loops." in error
    assert "fixed k can never" not in error  # its thresholds are swept, whatever the one it was given


def test_a_sweep_takes_the_model_options_of_a_run(call: Call, runs: Runs, text: Path, tmp_path: Path) -> None:
    more = ("--initial-state", "normal:0.5", "--lens", "logit", "--record", "kl_reverse", "--dtype", "bfloat16", "--seed", 3)
    code, _, _ = call("--text", text, *SMALL, "--rules", "step_norm", *more, "--out", tmp_path / "out")
    assert code == 0
    asked = study.Request.from_json(study.load(tmp_path / "out" / "parts" / "0000").request)
    assert asked.initial_state == study.InitialState("normal", std=0.5)
    assert (asked.lenses, asked.quantities, asked.dtype, asked.seed) == (("logit",), ("kl_reverse",), "bfloat16", 3)
    for words, said in ((("--lens", "tuned"), "--lens tuned"), (("--initial-state", "ones"), "choose trained, zeros")):
        code, _, error = call("--text", text, *SMALL, *words, "--out", tmp_path / "other")
        assert code == 2
        assert said in error


def test_commands_that_run_a_model_declare_the_same_options() -> None:
    def declared(command: Callable[[argparse.ArgumentParser], None]) -> set[str]:
        parser = argparse.ArgumentParser()
        command(parser)
        return {word for action in parser._actions for word in action.option_strings}

    shared = declared(lambda parser: arguments.model_options(parser, loops=None, lens=None))
    assert {"--checkpoint", "--loops", "--initial-state", "--lens", "--record", "--block", "--head"} <= shared
    assert shared <= declared(arguments.run_options)
    assert shared <= declared(arguments.sweep_options)
