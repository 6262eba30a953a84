"""The command line: what it writes, and that every wrong input is one sentence and exit code 2."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import export, study
from analysis.chart import Camera, View, chart_builders
from analysis.charts.trajectory import TrajectoryChart
from analysis.exit_rule import ExitRule, default_rules, exit_rules
from analysis.projection import projections
from analysis.statistic import statistics
from app import cli
from app.access import ROOTS
from model.capture.trajectory import load_run
from tests.toys import toy_run, toy_trajectory


@dataclass
class Answer:
    """What one call of the command line gave."""

    code: int
    out: str
    err: str


Call = Callable[..., Answer]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*argv: object) -> Answer:
        code = cli.main([str(word) for word in argv])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run


@dataclass
class Toy:
    """Stands where the torch side is: remembers the requests, gives made-up trajectories."""

    requests: list[study.Request] = field(default_factory=list[study.Request])
    stop_at: int | None = None
    fits: bool = True

    def run(self, request: study.Request, *, progress: Any = None, cancel: Any = None) -> study.Run:
        if self.stop_at == len(self.requests):
            raise KeyboardInterrupt
        self.requests.append(request)
        progress("loading", 0.0)
        progress("capturing", 0.5)
        trajectory = toy_trajectory(loops=request.loops[0], tokens=4, seed=len(self.requests))
        return study.Run(request=request.to_json(), trajectories=(trajectory,))

    def resolve(self, request: study.Request, *, progress: Any = None) -> study.Request:
        return replace(request, digest="d" * 64)

    def estimate(self, request: study.Request) -> study.Estimate:
        return study.Estimate(10, 20, 100 if self.fits else 5, () if self.fits else ("run fewer loops",))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    made = Toy()
    monkeypatch.setattr(study, "run", made.run)
    monkeypatch.setattr(study, "estimate", made.estimate)
    monkeypatch.setattr(study, "resolve", made.resolve)
    return made


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def sentence(answer: Answer) -> str:
    """The one line that a refused call writes; nothing on stdout, no traceback."""
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert answer.err.startswith("loopscope")
    return answer.err


# run


def test_run_writes_folder_and_tables(call: Call, toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    answer = call("run", "--prompt", "a", "--prompt", "b", "--loops", 6, "--out", out, "--threshold", "step_norm=0.9")
    assert answer.code == 0
    assert answer.out.splitlines()[:3] == [str(out / name) for name in ("run.json", "statistics.csv", "exits.csv")]
    assert "drift-to-loop ratio" in answer.out
    assert "median exit loop" in answer.out
    run = load_run(out)
    assert len(run.trajectories) == 2
    assert study.Request.from_json(run.request).prompts == (study.Prompt("a"), study.Prompt("b"))
    rows = table(out / "statistics.csv")
    assert {row["prompt"] for row in rows} == {"0", "1"}
    assert {row["statistic"] for row in rows} == set(statistics())
    exits_rows = table(out / "exits.csv")
    assert {row["threshold"] for row in exits_rows if row["rule"] == "step_norm"} == {"0.9"}
    assert answer.err.splitlines() == [f"prompt {i} of 2: {stage}" for i in (1, 2) for stage in ("loading", "capturing")]


def test_every_option_reaches_the_request(call: Call, toy: Toy, tmp_path: Path) -> None:
    words = "--checkpoint demo@50 --ids 5,6,7 --loops 4,5,6 --seed 9 --initial-state normal:0.5 --lens logit --every 2"
    more = "--tokens 1:3 --dtype bfloat16 --device cpu --patience kl=3 --minimum-loops kl=4"
    assert call("run", *words.split(), *more.split(), "--out", tmp_path).code == 0
    assert toy.requests == [
        study.Request(
            checkpoint="demo@50",
            prompts=(study.Prompt(ids=(5, 6, 7)),),
            loops=(4, 5, 6),
            initial_state=study.InitialState("normal", std=0.5),
            seed=9,
            dtype="bfloat16",
            lenses=("logit",),
            record=study.Record(every=2, positions=(1, 3)),
            digest="d" * 64,
        )
    ]
    assert {row["patience"] for row in table(tmp_path / "exits.csv") if row["rule"] == "kl"} == {"3"}


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("trained", study.InitialState("trained")),
        ("zeros", study.InitialState("zeros")),
        ("normal:0", study.InitialState("normal", std=0.0)),
        ("noise/x.npz", study.InitialState("file", path="noise/x.npz")),
    ],
)
def test_initial_states(call: Call, toy: Toy, tmp_path: Path, words: str, state: study.InitialState) -> None:
    assert call("run", "--prompt", "a", "--loops", 2, "--initial-state", words, "--out", tmp_path).code == 0
    assert toy.requests[0].initial_state == state


def test_statistics_only_and_no_lens(call: Call, toy: Toy, tmp_path: Path) -> None:
    assert call("run", "--prompt", "a", "--loops", 2, "--statistics-only", "--lens", "none", "--out", tmp_path).code == 0
    assert toy.requests[0].record.states is False
    assert toy.requests[0].lenses == ()


def test_prompts_from_a_file(call: Call, toy: Toy, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "a"}\n{"ids": [1, 2]}\n')
    assert call("run", "--prompts", file, "--loops", 2, "--out", tmp_path / "out").code == 0
    assert [request.prompts[0] for request in toy.requests] == [study.Prompt("a"), study.Prompt(ids=(1, 2))]


def test_ctrl_c_keeps_the_prompts_that_are_done(call: Call, toy: Toy, tmp_path: Path) -> None:
    toy.stop_at = 2
    answer = call("run", *(word for text in "abc" for word in ("--prompt", text)), "--loops", 3, "--out", tmp_path)
    assert answer.code == 130
    assert "kept 2 of 3 prompts" in answer.err
    assert study.Request.from_json(load_run(tmp_path).request).prompts == (study.Prompt("a"), study.Prompt("b"))
    assert {row["prompt"] for row in table(tmp_path / "exits.csv")} == {"0", "1"}


def test_ctrl_c_before_anything_is_done_writes_nothing(call: Call, toy: Toy, tmp_path: Path) -> None:
    toy.stop_at = 0
    answer = call("run", "--prompt", "a", "--loops", 3, "--out", tmp_path / "out")
    assert answer.code == 130
    assert "nothing was written" in answer.err
    assert not (tmp_path / "out").exists()


def test_a_run_is_not_replaced_unasked(call: Call, toy: Toy, tmp_path: Path) -> None:
    assert call("run", "--prompt", "a", "--loops", 3, "--out", tmp_path / "out").code == 0
    kept = (tmp_path / "out" / "run.json").read_bytes()
    again = call("run", "--prompt", "b", "--loops", 3, "--out", tmp_path / "out")
    assert again.code == 2
    assert "holds a run already" in again.err
    assert (tmp_path / "out" / "run.json").read_bytes() == kept
    assert call("run", "--prompt", "b", "--loops", 3, "--out", tmp_path / "out", "--overwrite").code == 0
    assert (tmp_path / "out" / "run.json").read_bytes() != kept


def test_a_run_is_not_written_among_the_files_of_a_checkpoint(call: Call, toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt").write_text("x")
    for more in ((), ("--overwrite",)):
        answer = call("run", "--prompt", "a", "--loops", 3, "--out", tmp_path, *more)
        assert answer.code == 2
        assert f"--out {tmp_path} holds a checkpoint (ckpt.pt); name a folder of its own for the run." in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt.pt"]


def test_a_camera_that_is_no_number_is_refused(call: Call, toy: Toy, tmp_path: Path) -> None:
    assert call("run", "--prompt", "a", "--loops", 3, "--out", tmp_path / "out").code == 0
    for camera in ("nan,10", "10,nan", "inf,10", "10,91"):
        answer = call(
            "export", "--run", tmp_path / "out", "--chart", "trajectory", "--dims", 3, f"--camera={camera}", "--out", tmp_path
        )
        assert answer.code == 2, camera
        assert "camera" in answer.err


def test_a_bar_is_drawn_on_a_terminal(
    call: Call, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    answer = call("run", "--prompt", "a", "--loops", 3, "--out", tmp_path)
    bars = [part.removeprefix("\x1b[K") for part in answer.err.split("\r") if part]
    assert [bar.count("#") for bar in bars] == [0, 14, 0]
    assert bars[1] == f"[{'#' * 14}{'.' * 14}]  50% capturing"
    assert answer.err.endswith("\r\x1b[K")


def test_a_rule_without_its_readout_is_named(call: Call, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(request: study.Request, *, progress: Any) -> study.Run:
        run = toy.run(request, progress=progress)
        blocks = tuple(replace(block, readouts={}) for block in run.trajectories[0].blocks)
        return replace(run, trajectories=(replace(run.trajectories[0], blocks=blocks),))

    monkeypatch.setattr(study, "run", bare)
    answer = call("run", "--prompt", "a", "--loops", 3, "--lens", "none", "--out", tmp_path)
    assert answer.code == 0
    assert "--lens" in answer.err
    assert {row["exit_loop"] for row in table(tmp_path / "exits.csv") if row["rule"] == "kl"} == {""}


GOOD = ("--prompt", "a", "--loops", "2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--prompt", "", "--loops", "2"), "empty"),
        (("--prompt", "a", "--loops", "0"), "0 loops"),
        (("--prompt", "a", "--loops", "10000"), "10000 loops"),
        (("--prompt", "a", "--loops", "many"), "whole numbers"),
        (("--prompt", "a"), "--loops"),
        (("--loops", "2"), "--prompt"),
        (("--ids", "5,x", "--loops", "2"), "token ids"),
        (("--prompts", "{tmp}/none.txt", "--loops", "2"), "none.txt"),
        (("--prompts", "{tmp}/bad.txt", "--loops", "2"), "bad.txt"),
        ((*GOOD, "--seed", "-1"), "Seed -1"),
        ((*GOOD, "--lens", "tuned"), "--lens tuned"),
        ((*GOOD, "--dtype", "int8"), "--dtype int8"),
        ((*GOOD, "--every", "0"), "0-th"),
        ((*GOOD, "--tokens", "3:1"), "3:1"),
        ((*GOOD, "--tokens", "3"), "START:STOP"),
        ((*GOOD, "--initial-state", "normal"), "normal:STD"),
        ((*GOOD, "--initial-state", "normal:x"), "normal:STD"),
        ((*GOOD, "--initial-state", "normal:-1"), "at least 0"),
        ((*GOOD, "--initial-state", "ones"), "zeros"),
        ((*GOOD, "--threshold", "kl"), "NAME=VALUE"),
        ((*GOOD, "--threshold", "kl=1", "--threshold", "kl=2"), "twice"),
        ((*GOOD, "--threshold", "entrophy=1"), "acceleration, acceleration_over_peak, "),
        ((*GOOD, "--threshold", "entropy=1"), "--rules acceleration,kl,step_norm,entropy"),
        ((*GOOD, "--threshold", "kl=low"), "a number was expected"),
        ((*GOOD, "--rules", "kl,entrophy"), "acceleration_over_peak"),
        ((*GOOD, "--rule", "kl.scope=word"), "choose one of token, sequence"),
        ((*GOOD, "--rule", "kl.mood=good"), "its options are: threshold, patience, minimum_loops, scope, lens, direction"),
        ((*GOOD, "--rule", "kl.threshold=1", "--threshold", "kl=2"), "twice"),
        ((*GOOD, "--threshold", "kl=nan"), "not a number"),
        ((*GOOD, "--threshold", "kl=-1"), "threshold of kl is -1; its score is never below 0"),
        ((*GOOD, "--threshold", "step_norm=inf"), "give a finite number of at least 0"),
        ((*GOOD, "--rules", "fixed_k", "--threshold", "fixed_k=2.5"), "give a whole number of at least 1"),
        ((*GOOD, "--rules", "top_probability", "--threshold", "top_probability=7"), "give a number from 0 to 1"),
        ((*GOOD, "--rules", "learned_gate", "--rule", "learned_gate.threshold=1.5"), "give a number from 0 to 1"),
        ((*GOOD, "--patience", "kl=0"), "at least 1"),
        ((*GOOD, "--frobnicate"), "--frobnicate"),
    ],
)
def test_bad_input_to_run_is_one_sentence(call: Call, toy: Toy, tmp_path: Path, words: Sequence[str], said: str) -> None:
    (tmp_path / "bad.txt").write_bytes(b"a\0b")
    answer = call("run", *(word.format(tmp=tmp_path) for word in words), "--out", tmp_path / "out")
    assert said in sentence(answer)
    assert toy.requests == []
    assert not (tmp_path / "out").exists()


def test_a_run_that_does_not_fit_is_refused_with_advice(call: Call, toy: Toy, tmp_path: Path) -> None:
    toy.fits = False
    assert "run fewer loops" in sentence(call("run", *GOOD, "--out", tmp_path))


def test_a_place_that_cannot_be_written_is_one_sentence(call: Call, toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in sentence(call("run", *GOOD, "--out", tmp_path / "file"))
    assert toy.requests == []


def test_unknown_checkpoint_is_one_sentence(call: Call, tmp_path: Path) -> None:
    assert "nowhere" in sentence(call("run", "--checkpoint", "nowhere", *GOOD, "--out", tmp_path))
    assert "demo@7" in sentence(call("run", "--checkpoint", "demo@7", *GOOD, "--out", tmp_path))


def test_an_error_of_ours_is_not_hidden(call: Call, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: study.Request) -> study.Estimate:
        raise ZeroDivisionError

    monkeypatch.setattr(study, "estimate", broken)
    with pytest.raises(ZeroDivisionError):
        call("run", *GOOD, "--out", tmp_path)


# export


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    study.save(toy_run(), tmp_path / "run")
    return tmp_path / "run"


def rules(**thresholds: float) -> tuple[ExitRule, ...]:
    kinds: dict[str, Any] = dict(default_rules())
    return tuple(kind(threshold=thresholds[name]) if name in thresholds else kind() for name, kind in kinds.items())


@pytest.mark.parametrize("chart", ["trajectory", "heatmap", "curves", "drift", "rule", "says"])
def test_export_writes_the_bytes_of_the_library(call: Call, saved: Path, tmp_path: Path, chart: str) -> None:
    answer = call("export", "--run", saved, "--chart", chart, "--format", "svg,csv,json", "--out", tmp_path / "f")
    assert answer.code == 0
    run = load_run(saved)
    kind: Any = chart_builders()[chart]
    built = kind().build(View(run=run, rules=rules()))
    kinds: tuple[export.Kind, ...] = ("svg", "csv", "json")
    for wanted in kinds:
        path = tmp_path / "f" / export.file_name(built, wanted, "icml2024")
        assert str(path) in answer.out.splitlines()
        assert path.read_bytes() == export.export(built, kind=wanted, venue="icml2024", request=run.request)


def test_export_options_reach_view_and_chart(call: Call, saved: Path, tmp_path: Path) -> None:
    words = "--prompt 1 --token 2 --block 1 --loop 3 --dims 3 --projection pca --camera 120,10 --threshold step_norm=0.5"
    more = "--set fit=chosen --set chosen=0,2 --set show_start=false --set norm_limit=50 --venue neurips2024"
    out = tmp_path / "f"
    call("export", "--run", saved, "--chart", "trajectory", *words.split(), *more.split(), "--format", "pdf,csv", "--out", out)
    run = load_run(saved)
    view = View(run=run, prompt=1, token=2, block=1, loop=3, rules=rules(step_norm=0.5))
    pca: Any = projections()["pca"]
    builder = TrajectoryChart(dims=3, projection=pca(), fit="chosen", chosen=(0, 2), show_start=False, norm_limit=50.0)
    chart = builder.build(view).seen_from(Camera(120.0, 10.0))
    names: dict[export.Kind, str] = {"pdf": "trajectory-neurips2024.pdf", "csv": "trajectory.csv"}
    for kind, name in names.items():
        assert (out / name).read_bytes() == export.export(chart, kind=kind, venue="neurips2024", request=run.request)


def test_export_compares_named_runs(call: Call, saved: Path, tmp_path: Path) -> None:
    study.save(toy_run(seed=5), tmp_path / "other")
    words = ("--other", f"early={tmp_path / 'other'}", "--other", f"late={saved}", "--statistic", "step_norm")
    answer = call("export", "--run", saved, "--chart", "checkpoints", *words, "--format", "csv", "--out", tmp_path)
    assert answer.code == 0
    assert {row["legend"] for row in table(tmp_path / "checkpoints.csv")} >= {"early", "late"}


def test_the_demos_prompt_is_compared_along_training_by_itself(call: Call, tmp_path: Path) -> None:
    study.save(study.run(study.bundled_request()), tmp_path / "run")
    answer = call("export", "--run", tmp_path / "run", "--chart", "checkpoints", "--format", "csv", "--out", tmp_path)
    assert answer.code == 0
    legends = {row["legend"] for row in table(tmp_path / "checkpoints.csv")}
    assert legends >= {label for label, _ in study.bundled_others()}
    assert len(study.bundled_others()) > 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--chart pie", "trajectory"),
        ("--chart curves --venue nature", "icml2024"),
        ("--chart curves --format gif", "pdf, svg"),
        ("--chart curves --prompt 9", "prompts 0 to 1"),
        ("--chart curves --block 9", "blocks 0 to 2"),
        ("--chart curves --token 9", "tokens 0 to 4"),
        ("--chart curves --loop 9", "loops 1 to 8"),
        ("--chart curves --statistic speed", "speed"),
        ("--chart curves --dims 3", "'dims'"),
        ("--chart curves --projection pca", "'projection'"),
        ("--chart curves --camera 1,2", "flat"),
        ("--chart curves --set blocks=some", "all, selected"),
        ("--chart curves --set per_prompt=maybe", "true or false"),
        ("--chart curves --set colour=red", "statistic, blocks, per_prompt"),
        ("--chart drift --set statistic", "NAME=VALUE"),
        ("--chart trajectory --dims 4", "2, 3"),
        ("--chart trajectory --dims 3 --camera 1,2,3", "degrees"),
        ("--chart trajectory --dims 3 --camera 1,95", "-90 to 90"),
        ("--chart trajectory --projection tsne", "pca, umap"),
        ("--chart trajectory --set projection.seed=1", "--projection"),
        ("--chart trajectory --projection umap --set projection.neighbours=1", "2 or more"),
        ("--chart trajectory --projection umap --set projection.neighbours=few", "whole number"),
        ("--chart trajectory --set chosen=0,x", "whole number"),
        ("--chart trajectory --set camera=1,2", "page"),
        ("--chart checkpoints", "no other checkpoints"),
        ("--chart checkpoints --other early={tmp}/nothing", "run.json"),
    ],
)
def test_bad_input_to_export_is_one_sentence(call: Call, saved: Path, tmp_path: Path, words: str, said: str) -> None:
    answer = call("export", "--run", saved, *words.format(tmp=tmp_path).split(), "--out", tmp_path / "figures")
    assert said in sentence(answer)
    assert not (tmp_path / "figures").exists()


def test_a_folder_that_is_no_run_is_one_sentence(call: Call, tmp_path: Path) -> None:
    assert "run.json" in sentence(call("export", "--run", tmp_path, "--chart", "curves", "--out", tmp_path))


def test_warnings_of_a_chart_go_to_stderr(call: Call, tmp_path: Path) -> None:
    run = toy_run(prompts=1)
    block = run.trajectories[0].blocks[0]
    marked = replace(block, nonfinite_from=np.array([0, 0, 5, 0, 0], dtype=np.int64))
    trajectory = replace(run.trajectories[0], blocks=(marked, *run.trajectories[0].blocks[1:]))
    study.save(replace(run, trajectories=(trajectory,)), tmp_path / "run")
    answer = call("export", "--run", tmp_path / "run", "--chart", "trajectory", "--format", "csv", "--out", tmp_path)
    assert answer.code == 0
    assert "non-finite" in answer.err


# list, app, and the shell around them


def test_list_names_everything_with_one_line_each(call: Call) -> None:
    answer = call("list")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == list(cli.SECTIONS)
    listed = {line.split()[0] for line in lines if line.startswith("  ")}
    assert listed >= {
        *exit_rules(),
        *statistics(),
        *projections(),
        *chart_builders(),
        *study.readouts(),
        *study.architectures(),
    }


@pytest.mark.parametrize("section", ["rules", "statistics", "projections", "charts"])
def test_list_of_one_section(call: Call, section: str) -> None:
    known = {"rules": exit_rules, "statistics": statistics, "projections": projections, "charts": chart_builders}[section]
    lines = call("list", section).out.splitlines()
    assert [line.split()[0] for line in lines] == list(known())
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in lines)


def test_list_of_an_unknown_section(call: Call) -> None:
    assert "architectures" in sentence(call("list", "colours"))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str | None]]:
    """Commands that the command line started, each with the folders that are open to it."""
    found: list[tuple[list[str], str | None]] = []

    def fake(command: list[str], *, check: bool, env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
        found.append((command, env.get(ROOTS)))
        return subprocess.CompletedProcess(command, 7)

    monkeypatch.setattr(subprocess, "run", fake)
    return found


def test_app_starts_streamlit_on_the_folder(call: Call, started: list[tuple[list[str], str | None]]) -> None:
    assert call("app", "--port", 8600).code == 7
    folder = str(Path(cli.__file__).parent)
    assert started == [([sys.executable, "-P", "-m", "streamlit", "run", folder, "--server.port=8600"], None)]
    assert call("app").code == 7
    assert started[1][0][-1] == folder
    assert "65535" in sentence(call("app", "--port", 99999))


def test_app_listens_elsewhere_and_opens_named_folders(
    call: Call, started: list[tuple[list[str], str | None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path)
    call("app", "--address", "0.0.0.0", "--checkpoint-root", "a", "--checkpoint-root", tmp_path / "b")
    assert started[0][0][-1] == "--server.address=0.0.0.0"
    assert started[0][1] == os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")])
    assert "is no folder" in sentence(call("app", "--checkpoint-root", "nowhere"))
    assert len(started) == 1


def test_help_and_version_answer_with_zero(call: Call) -> None:
    assert call("--version").out == "loopscope 0.1.0\n"
    for words in ((), ("run",), ("export",), ("list",), ("app",)):
        answer = call(*words, "--help")
        assert answer.code == 0
        assert "usage:" in answer.out
    assert sentence(call())


def shell(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, as a person starts it."""
    script = Path(sys.executable).with_name("loopscope")
    return subprocess.run([str(script), *map(str, words)], capture_output=True, text=True, check=False, timeout=120, **options)


def test_help_imports_nothing_heavy() -> None:
    heavy = {"torch", "numpy", "streamlit", "plotly", "matplotlib", "sklearn", "analysis.study"}
    code = f"import sys, app.cli; app.cli.main(['--help']); print(sorted(set(sys.modules) & {heavy!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    script = Path(sys.executable).with_name("loopscope")
    with os.fdopen(write, "w") as pipe:
        done = subprocess.run(
            [str(script), "list", "charts"], stdout=pipe, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr == ""


def test_a_model_py_in_the_folder_does_not_hide_ours(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("raise RuntimeError('hidden')\n")
    done = shell("list", "rules", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_unicode_shows_escapes(tmp_path: Path) -> None:
    done = shell("run", "--checkpoint", "nö", *GOOD, "--out", tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 2
    assert "n\\xf6" in done.stderr


@pytest.mark.slow
def test_the_demo_for_real(tmp_path: Path) -> None:
    """Run in one process, export in another, equal inputs give equal files; a prompt alone gives the rows it has in company."""
    done = shell("run", "--prompt", "The sea was calm", "--prompt", "Once", "--loops", 4, "--out", tmp_path / "both")
    assert done.returncode == 0, done.stderr
    alone = shell("run", "--prompt", "Once", "--loops", 4, "--out", tmp_path / "alone")
    assert alone.returncode == 0, alone.stderr
    kept = [row | {"prompt": "0"} for row in table(tmp_path / "both" / "statistics.csv") if row["prompt"] == "1"]
    assert kept == table(tmp_path / "alone" / "statistics.csv")
    summary = json.loads((tmp_path / "both" / "run.json").read_text())
    assert [prompt["text"] for prompt in summary["request"]["prompts"]] == ["The sea was calm", "Once"]
    for folder in ("one", "two"):
        shell("export", "--run", tmp_path / "both", "--chart", "trajectory", "--format", "pdf", "--out", tmp_path / folder)
    name = "trajectory-icml2024.pdf"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
