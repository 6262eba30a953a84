"""What every chart promises, for every chart there is: words, keys, hashability, small and odd runs."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from analysis.chart import Chart, ChartError, Rule, View, chart_builders, chart_rows
from analysis.exit_rule import MissingReadout, default_rules
from analysis.projection import ProjectionError
from tests.toys import toy_run

NAMES = sorted(chart_builders())
RULES = tuple(kind() for kind in default_rules().values())
SENTENCES = (ChartError, ProjectionError, MissingReadout)


def view(**sizes: int) -> View:
    run = toy_run(**{"prompts": 1} | sizes)
    others = (("step 0", toy_run(**{"prompts": 1} | sizes | {"seed": 5})), ("step 9", run))
    return View(run=run, rules=RULES, others=others)


def words_are_complete(chart: Chart) -> None:
    assert chart.title
    assert chart.panels
    assert "post hoc" in chart.caption
    assert "float32" in chart.caption
    assert "raw states" in chart.caption
    for text in (chart.caption, chart.alt, *chart.warnings):
        assert text.endswith(".")
        assert "nan" not in text


def test_the_charts_that_the_pages_name_exist() -> None:
    assert NAMES == ["checkpoints", "curves", "drift", "exit_histogram", "heatmap", "pareto", "rule", "says", "trajectory"]


@pytest.mark.parametrize("name", NAMES)
def test_builder_is_documented_and_hashable(name: str) -> None:
    kind = chart_builders()[name]
    assert kind.__doc__
    assert kind.build.__doc__
    assert hash(kind()) == hash(kind())
    assert kind() == kind()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("token", [None, 2])
def test_default_chart_has_words_and_keyed_rows(name: str, token: int | None) -> None:
    chosen = dataclasses.replace(view(), token=token, loop=3)
    chart = chart_builders()[name]().build(chosen)
    assert chart.name == name
    words_are_complete(chart)
    rows = chart_rows(chart)
    assert rows
    for row in rows:
        if row["mark"] != Rule.__name__.lower():
            assert "block" in row
            assert name in ("drift", "exit_histogram", "pareto") or isinstance(row["loop"], int)
            assert not any(isinstance(value, float) and not np.isfinite(value) for value in row.values())
            if "position" in row:
                assert row["token"] == chosen.trajectory.labels[row["position"]]
                assert row["prompt"] == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("loops", [1, 2, 3])
@pytest.mark.parametrize("blocks", [1, 3])
def test_small_runs_give_a_chart_or_a_sentence(name: str, tokens: int, loops: int, blocks: int) -> None:  # case C9
    chosen, builder = view(tokens=tokens, loops=loops, blocks=blocks), chart_builders()[name]()
    if _refuses(name, tokens=tokens, loops=loops, blocks=blocks):
        with pytest.raises(SENTENCES, match=r"\.$"):
            builder.build(chosen)
    else:
        chart = builder.build(chosen)
        words_are_complete(chart)
        assert chart_rows(chart)


def _refuses(name: str, *, tokens: int, loops: int, blocks: int) -> bool:
    """Where a chart has nothing to show: no hand-off, no mean step, no earlier iterate, one single point, no next token."""
    return (
        (name == "drift" and (blocks == 1 or loops == 1))
        or (name == "heatmap" and loops == 1)
        or (name == "trajectory" and tokens * loops * blocks == 1)
        or (name == "pareto" and (tokens == 1 or loops == 1))
    )


@pytest.mark.parametrize("name", NAMES)
def test_building_twice_gives_the_same_and_leaves_the_run_alone(name: str) -> None:
    chosen = view()
    before = [(key, array.copy()) for block in chosen.trajectory.blocks for key, array in _arrays(block)]
    builder = chart_builders()[name]()
    assert chart_rows(builder.build(chosen)) == chart_rows(builder.build(chosen))
    after = [pair for block in chosen.trajectory.blocks for pair in _arrays(block)]
    for (key, old), (_, new) in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new, err_msg=key)


def _arrays(block: Any) -> list[tuple[str, np.ndarray]]:
    return [
        (field.name, value)
        for field in dataclasses.fields(block)
        if isinstance(value := getattr(block, field.name), np.ndarray)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_states_and_readouts_gives_a_chart_or_says_what_to_record(name: str) -> None:
    run = toy_run(prompts=1)
    bare = tuple(
        dataclasses.replace(
            block,
            states=np.empty((0, 0, 6), dtype=np.float32),
            entry=np.empty((0, 6), dtype=np.float32),
            loop_index=np.empty(0, dtype=np.int64),
            positions=np.empty(0, dtype=np.int64),
            readouts={},
        )
        for block in run.trajectories[0].blocks
    )
    thin = dataclasses.replace(run, trajectories=(dataclasses.replace(run.trajectories[0], blocks=bare),))
    chosen = View(run=thin, rules=RULES, others=(("step 0", thin),))
    if name in ("trajectory", "heatmap", "says", "pareto"):
        with pytest.raises(SENTENCES, match="run again with"):
            chart_builders()[name]().build(chosen)
    else:
        chart = chart_builders()[name]().build(chosen)
        assert chart_rows(chart)
        assert name != "rule" or any("KL" in warning and "run again" in warning for warning in chart.warnings)
