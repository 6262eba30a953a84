"""The CSV tables: complete, exact, undefined is empty, and a rule that cannot be evaluated costs no run."""

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.exit_rule import ExitRule, default_rules, exit_rules, exits
from analysis.exits.acceleration import AccelerationExit
from analysis.exits.step_norm import StepNormExit
from analysis.statistic import pooled, statistics
from analysis.tables import EXITS_HEADER, STATISTICS_HEADER, overview, write_exits, write_statistics
from model.capture.trajectory import BlockTrace, Run
from tests.toys import toy_block, toy_run, toy_trajectory


def rows_of(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        return list(reader.fieldnames or ()), list(reader)


def usual_rules() -> tuple[ExitRule, ...]:
    return tuple(kind() for kind in default_rules().values())


def test_statistics_have_a_row_for_every_value_and_read_back_exactly(tmp_path: Path) -> None:
    run = toy_run(prompts=2, loops=4, tokens=3, blocks=2)
    write_statistics(run, tmp_path / "statistics.csv")
    header, rows = rows_of(tmp_path / "statistics.csv")
    assert header == list(STATISTICS_HEADER) == ["prompt", "position", "token", "block", "loop", "statistic", "value"]
    read = {(r["prompt"], r["position"], r["block"], r["loop"], r["statistic"]): r["value"] for r in rows}
    assert len(read) == len(rows)
    count = 0
    for p, trajectory in enumerate(run.trajectories):
        for g in range(2):
            for name, statistic in statistics().items():
                values = statistic.values(trajectory, g)
                for index, value in np.ndenumerate(values):
                    loop = "" if statistic.level == "handoff" else str(index[0] + 1)
                    cell = read[str(p), str(index[-1]), str(g), loop, name]
                    assert (cell == "") if math.isnan(value) else (float(cell) == value)
                    count += 1
    assert count == len(rows)
    assert {r["loop"] for r in rows if r["statistic"] == "drift"} == {""}
    undefined = [r["value"] for r in rows if r["statistic"] == "step_cosine" and r["loop"] == "1"]
    assert len(undefined) == (3 + 4) * 2
    assert set(undefined) == {""}


def test_labels_survive_commas_quotes_and_line_breaks(tmp_path: Path) -> None:
    labels = ("a,b", 'say "x"', "⏎\n", "<s>", "=1+1")
    run = Run(request={}, trajectories=(toy_trajectory(tokens=5, loops=2, labels=labels),))
    write_statistics(run, tmp_path / "s.csv")
    _, rows = rows_of(tmp_path / "s.csv")
    assert {r["position"]: r["token"] for r in rows} == {str(i): label for i, label in enumerate(labels)}


def test_exits_name_number_never_and_undefined(tmp_path: Path) -> None:
    states = np.zeros((5, 3, 2), dtype=np.float32)
    states[:, 0, 0] = [0, 8, 12, 12.5, 12.6]  # step norms 8, 4, .5, .1
    states[:, 1, 0] = [0, 8, 16, 24, 32]
    states[:, 2, 0] = np.nan
    trajectory = replace(toy_trajectory(tokens=3, blocks=1), blocks=(toy_block(states),))
    rule = StepNormExit(threshold=1.0)
    assert write_exits(Run(request={}, trajectories=(trajectory,)), (rule,), tmp_path / "exits.csv") == ()
    header, rows = rows_of(tmp_path / "exits.csv")
    assert header == list(EXITS_HEADER)
    assert [r["exit_loop"] for r in rows] == ["3", "never", ""]
    (settings,) = {tuple(list(r.values())[3:-1]) for r in rows}
    assert settings == ("0", "h[1]", "step_norm", "<", "1.0", "1", "2", "token", "", "", "post hoc", "4")


def test_every_setting_of_a_rule_stands_in_the_file(tmp_path: Path) -> None:
    kinds: dict[str, Any] = dict(exit_rules())
    given: list[ExitRule] = [
        kinds["kl"](threshold=0.03, patience=2, minimum_loops=3, scope="sequence", lens="logit"),
        kinds["top_probability"](threshold=0.25),
        kinds["oracle_cross_entropy"](),
    ]
    write_exits(toy_run(prompts=1), given, tmp_path / "exits.csv")
    _, rows = rows_of(tmp_path / "exits.csv")
    for rule in given:
        (row,) = [r for r in rows if r["rule"] == rule.name and r["position"] == "0" and r["block"] == "2"]
        options = dict(pair.split("=") for pair in row["options"].split(";"))
        numbers = {"threshold": float(row["threshold"]), **{n: int(row[n]) for n in ("patience", "minimum_loops")}}
        again = kinds[row["rule"]](**numbers, scope=row["scope"], **options)
        assert again == rule
        assert row["stops"] == rule.stops
        assert row["lens"] == ("logit" if rule.name == "kl" else "coda")


def test_exits_agree_with_the_rules(tmp_path: Path, toy_run: Run) -> None:
    rules = usual_rules()
    write_exits(toy_run, rules, tmp_path / "exits.csv")
    _, rows = rows_of(tmp_path / "exits.csv")
    by_name = {rule.name: rule for rule in rules}
    assert len(rows) == len(rules) * 3 * (5 + 6)
    for row in rows:
        found = exits(by_name[row["rule"]], toy_run.trajectories[int(row["prompt"])], int(row["block"]))
        position = int(row["position"])
        wanted = "never" if not found.fired[position] else str(found.loop[position])
        assert row["exit_loop"] == (wanted if found.defined[position] else "")


def without_readouts(trace: BlockTrace) -> BlockTrace:
    return replace(trace, readouts={})


def test_a_rule_whose_readout_is_missing_has_empty_rows_and_one_sentence(tmp_path: Path, toy_run: Run) -> None:
    bare = replace(
        toy_run,
        trajectories=tuple(replace(t, blocks=tuple(map(without_readouts, t.blocks))) for t in toy_run.trajectories),
    )
    sentences = write_exits(bare, usual_rules(), tmp_path / "exits.csv")
    assert len(sentences) == len(set(sentences)) == 3  # one per block, however many prompts
    assert all("--lens" in sentence for sentence in sentences)
    _, rows = rows_of(tmp_path / "exits.csv")
    assert {r["exit_loop"] for r in rows if r["rule"] == "kl"} == {""}
    assert {r["exit_loop"] for r in rows if r["rule"] == "acceleration"} != {""}
    assert [row[0] for row in overview(bare, usual_rules())[1] if "KL" in row[0]] == []


def test_a_table_is_replaced_as_a_whole(tmp_path: Path, toy_run: Run) -> None:
    path = tmp_path / "deep" / "statistics.csv"
    write_statistics(toy_run, path)
    before = path.read_bytes()
    broken = replace(toy_run, trajectories=(*toy_run.trajectories, replace(toy_run.trajectories[0], labels=())))
    with pytest.raises(IndexError):
        write_statistics(broken, path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["statistics.csv"]


def test_overview_holds_pooled_medians_and_counts(toy_run: Run) -> None:
    rules = (AccelerationExit(threshold=0.3), StepNormExit(threshold=1e-9))
    by_block, by_rule = overview(toy_run, rules)
    assert [row[0] for row in by_block[1:]] == ["h[1]", "h[2]", "h[3]"]
    median = pooled(statistics()["step_norm"], toy_run, 1).median
    assert by_block[2][1:4] == ("8", f"{median[1]:.4g}", f"{median[-1]:.4g}")
    assert by_block[3][-1] == ""  # no hand-off out of the last block
    for row in by_rule[1:4]:
        assert int(row[5]) + int(row[6]) + int(row[7]) == 11
        assert int(row[5]) > 0
    assert [row[4:] for row in by_rule[4:]] == [("", "0", "11", "0")] * 3
    assert {row[0] for row in by_rule[4:]} == {"step norm (step_norm)"}
    assert {row[2] for row in by_rule[4:]} == {"< 1e-09"}


def test_overview_of_one_loop_leaves_cells_empty() -> None:
    by_block, _ = overview(toy_run(loops=1), ())
    assert by_block[1][2] == by_block[1][5] == by_block[1][6] == ""
    assert float(by_block[1][3]) > 0
