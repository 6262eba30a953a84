"""The bundled demo: its size, its cards and runs, and the claims that its README makes."""

import csv
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from analysis import study
from model import bundle
from model.checkpoint import card
from model.locate import DEMO_FOLDER, demo_names, demo_steps
from model.report import CORPUS, measure, two_scales

ROOT = Path(__file__).parent.parent.parent


def report() -> dict[tuple[str, int], float]:
    with (DEMO_FOLDER / "report.csv").open(encoding="utf-8") as file:
        return {(row["checkpoint"], int(row["loops"])): float(row["cross_entropy"]) for row in csv.DictReader(file)}


def test_sizes_stay_within_the_limits() -> None:
    held = sum(path.stat().st_size for path in DEMO_FOLDER.rglob("*") if path.is_file())
    everything = sum(path.stat().st_size for path in DEMO_FOLDER.parent.rglob("*") if path.is_file())
    assert held < 40e6
    assert everything < 60e6
    assert card("demo").parameters <= 1_600_000


def test_six_checkpoints_from_step_zero() -> None:
    steps = demo_steps()
    assert len(steps) >= 6
    assert steps[0] == 0
    assert study.checkpoints() == tuple(f"demo@{step}" for step in steps)
    for name in demo_names():
        assert study.card(name) == card(name), f"cards.json is stale for {name}; run `make demo-runs`"


def test_the_last_checkpoint_keeps_its_promises() -> None:
    last = demo_names()[-1]
    values = report()
    readme = (DEMO_FOLDER / "README.md").read_text(encoding="utf-8")
    match = re.search(r"0\.1 unigram\) gives ([0-9]\.[0-9]+)", readme)
    assert match is not None
    assert values[last, 8] < float(match.group(1)) - 0.1
    assert values[last, 8] < values[last, 2]
    assert values[last, 32] < values[last, 8] + 0.02


def test_the_readme_quotes_the_report() -> None:
    readme = (DEMO_FOLDER / "README.md").read_text(encoding="utf-8")
    values = report()
    for name in demo_names():
        row = next(line for line in readme.splitlines() if line.startswith(f"| {name.removeprefix('demo@')} |"))
        quoted = [float(cell) for cell in row.strip("| ").split("|")[2:]]
        assert quoted == [pytest.approx(values[name, loops], abs=5e-4) for loops in (1, 2, 4, 8, 16, 32)]


def test_the_first_run_is_current_and_what_the_model_gives_now() -> None:
    request = study.bundled_request()
    assert study.resolve(request) == request, "the bundled run is stale; run `make demo-runs`"
    bundled = study.run(request).trajectories[0]
    from model.runner import run

    fresh = run(request).trajectories[0]
    for a, b in zip(bundled.blocks, fresh.blocks, strict=True):
        np.testing.assert_allclose(a.states, b.states, atol=1e-4)
        np.testing.assert_allclose(a.readouts["logit", "entropy"], b.readouts["logit", "entropy"], atol=1e-3)


def test_every_checkpoint_has_its_overlay_run() -> None:
    others = study.bundled_others()
    assert [label for label, _ in others] == [f"step {step}" for step in demo_steps()]
    for _, run in others:
        assert run.trajectories[0].prompt == study.bundled_request().prompts[0].text


def test_the_first_screen_needs_no_torch() -> None:
    code = (
        "import sys; from analysis import study; r = study.bundled_request(); study.run(r); study.card('demo'); "
        "study.estimate(r); study.tokenize('demo', 'x'); study.bundled_others(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_steps_shrink_and_turn_over_training() -> None:
    """The two-scale paper's first claim on this model: later checkpoints take smaller steps."""
    others = dict(study.bundled_others())
    first, last = others["step 50"].trajectories[0], others[f"step {demo_steps()[-1]}"].trajectories[0]
    for early, late in zip(first.blocks, last.blocks, strict=True):
        assert np.median(late.step_norm[3]) < np.median(early.step_norm[3])
        assert np.median(late.step_cosine[5]) < 0.5


def test_doors_list_families_and_readouts() -> None:
    assert "latent_ttc" in study.architectures()
    assert set(study.readouts()) >= {"entropy", "kl_previous", "kl_last", "log_probability_next", "top10"}
    assert all(sentence for sentence in (study.architectures() | study.readouts()).values())
    assert asdict(study.card("demo"))["block_names"] == ("h[1]", "h[2,3]", "h[4]")


def test_a_request_with_another_digest_is_refused() -> None:
    from dataclasses import replace

    with pytest.raises(study.CheckpointError, match="not those this request was made with"):
        study.resolve(replace(study.bundled_request(), digest="0" * 64))


def test_a_saved_run_opens_again(tmp_path: Path) -> None:
    run = study.run(study.bundled_request())
    study.save(run, tmp_path / "run")
    assert study.load(tmp_path / "run").request == run.request


@pytest.mark.slow
def test_building_the_bundle_again_gives_what_is_there(tmp_path: Path) -> None:
    bundle.build(tmp_path)
    assert (tmp_path / "cards.json").read_text(encoding="utf-8") == (DEMO_FOLDER / "cards.json").read_text(encoding="utf-8")
    for there in sorted((DEMO_FOLDER / "runs").iterdir()):
        old, new = study.load(there), study.load(tmp_path / "runs" / there.name)
        assert new.request == old.request
        for a, b in zip(old.trajectories[0].blocks, new.trajectories[0].blocks, strict=True):
            np.testing.assert_allclose(a.step_norm, b.step_norm, rtol=1e-3, atol=1e-4)


def test_the_report_measures_what_it_says(tmp_path: Path) -> None:
    text = (CORPUS / "report.txt").read_text(encoding="utf-8")[:3000]
    first, last = demo_names()[0], demo_names()[-1]
    measure((first, last), text, tmp_path)
    with (tmp_path / "report.csv").open(encoding="utf-8") as file:
        rows = {(row["checkpoint"], row["loops"]): row for row in csv.DictReader(file)}
    assert float(rows[last, "8"]["cross_entropy"]) < float(rows[first, "8"]["cross_entropy"]) - 2
    assert rows[first, "8"]["spread"] == ""
    assert float(rows[last, "8"]["spread"]) < 0.05
    two_scales((last,), text, tmp_path, loops=6, windows=2)
    with (tmp_path / "two_scales.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert len(found) == 3 * 6
    assert found[0]["step_cosine"] == ""
    assert all(-1 <= float(row["step_cosine"]) <= 1 for row in found if row["loop"] != "1")


def test_doors_answer_in_this_process() -> None:
    ids, labels = study.tokenize("demo", "The king")
    assert len(ids) == len(labels) == 2
    found = study.estimate(study.bundled_request())
    assert found.fits
    assert 0 < found.stored_bytes < 10e6
    with pytest.raises(study.RequestError, match="model's context is 128"):
        study.estimate(study.Request("demo", (study.Prompt("king " * 200),), (2,)))
    by_path = str(DEMO_FOLDER / f"step-{demo_steps()[-1]}")
    assert study.card(by_path).parameters == study.card("demo").parameters


def test_calibration_meets_its_budget_at_equal_loops() -> None:
    from analysis.calibrate import calibrate
    from analysis.comparison import compare
    from analysis.exit_rule import default_rules, exit_rules

    ids, _ = study.tokenize("demo", (CORPUS / "calibrate.txt").read_text(encoding="utf-8")[:2000])
    prompts = tuple(study.Prompt(ids=ids[i * 128 : (i + 1) * 128]) for i in range(3))
    runs = study.run(study.Request("demo", prompts, (12,), record=study.Record(states=False))).trajectories
    block = len(runs[0].blocks) - 1
    budget = compare(exit_rules()["kl"](), runs, block).mean_loops
    for kind in default_rules().values():
        found = calibrate(kind(), runs, block, mean_loops=budget)
        assert found.mean_loops == pytest.approx(budget, abs=0.1)
        assert found.cross_entropy == pytest.approx(found.full_depth, abs=0.02)
        default = compare(kind(), runs, block)
        assert default.mean_loops == pytest.approx(budget, abs=0.5), "the defaults no longer spend equal loops"
