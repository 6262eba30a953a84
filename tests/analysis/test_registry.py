"""The registry: the folder is the list, and a broken folder says what is wrong. The guide's examples are run here."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from analysis.chart import View, chart_rows
from analysis.exit_rule import exits
from analysis.exits.step_norm import StepNormExit
from analysis.export import export
from analysis.projection import gather
from analysis.registry import collect
from tests import contracts
from tests.toys import toy_run, toy_trajectory

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Writes a package of the given modules and returns its name; forgotten again afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    names: list[str] = []

    def write(**modules: str) -> str:
        name = f"made_extensions_{len(names)}"
        names.append(name)
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        return name

    yield write
    for module in [m for m in sys.modules if m.startswith("made_extensions_")]:
        del sys.modules[module]
    collect.cache_clear()


def one(name: str) -> str:
    return f"from dataclasses import dataclass as _frozen\n\n@_frozen\nclass Extension:\n    '''One.'''\n    name = {name!r}\n"


def test_classes_are_found_by_name_and_sorted(make: Make) -> None:
    found = collect(make(first=one("zebra"), second=one("ant")))
    assert list(found) == ["ant", "zebra"]
    assert found["ant"]().name == "ant"


def test_imported_and_private_classes_do_not_count(make: Make) -> None:
    text = "from pathlib import Path\nclass _Hidden: ...\n" + one("only")
    assert list(collect(make(module=text))) == ["only"]


def test_two_classes_of_one_name_are_refused(make: Make) -> None:
    with pytest.raises(TypeError, match="two extensions named 'same'"):
        collect(make(first=one("same"), second=one("same")))


@pytest.mark.parametrize(("text", "count"), [("x = 1\n", 0), (one("a") + "class Second: ...\n", 2)])
def test_not_exactly_one_class_is_refused(make: Make, text: str, count: int) -> None:
    with pytest.raises(TypeError, match=f"exactly one public class; it defines {count}"):
        collect(make(module=text))


@pytest.mark.parametrize("package", ["statistics", "exits", "projections", "charts"])
def test_our_folders_hold_nothing_but_extensions_named_like_their_files(package: str) -> None:
    found = collect(f"analysis.{package}")
    files = sorted(path.stem for path in (ROOT / "analysis" / package).glob("*.py") if path.stem != "__init__")
    assert sorted(found) == files


def example(heading: str) -> str:
    """The first Python block under a heading of the guide."""
    match = re.search(rf"^## {re.escape(heading)}$.*?^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert match, f"CONTRIBUTING.md has no example under {heading!r}"
    return match.group(1)


def test_the_guides_statistic_keeps_the_contract(make: Make) -> None:
    ((name, kind),) = collect(make(halving=example("A statistic"))).items()
    assert name == "step_shrink"
    contracts.check_statistic(kind)


def test_the_guides_rule_keeps_the_contract(make: Make) -> None:
    ((name, kind),) = collect(make(share=example("An exit rule"))).items()
    assert name == "path_share"
    contracts.check_rule(kind)


def test_the_guides_projection_projects(make: Make) -> None:
    ((name, kind),) = collect(make(random=example("A projection"))).items()
    assert name == "random"
    points = gather(toy_trajectory(width=6), (0, 1))
    for dims in (2, 3):
        projected = kind().project(points, dims=dims)
        assert projected.coordinates.shape == (len(points.vectors), dims)
        longest = np.linalg.norm(points.vectors, axis=1) + 1e-6
        assert (np.linalg.norm(projected.coordinates, axis=1) <= longest).all()


def test_the_guides_chart_is_drawn_and_exported(make: Make) -> None:
    ((name, kind),) = collect(make(depth=example("A chart"))).items()
    assert name == "depth"
    view = View(run=toy_run(), rules=(StepNormExit(threshold=0.5),))
    chart = kind().build(view)
    found = exits(StepNormExit(threshold=0.5), view.trajectory, 0)
    assert [row["y"] for row in chart_rows(chart)] == found.loop[found.fired].tolist()
    assert export(chart, kind="svg", venue="icml2024").lstrip().startswith(b"<?xml")


def test_the_guides_readout_is_decoded(make: Make) -> None:
    torch = pytest.importorskip("torch")
    readout = importlib.import_module("model.capture.readout")
    # The example is written for its folder; here it stands elsewhere, so its one relative import is made absolute.
    package = make(collision=example("A readout").replace("from ..readout", "from model.capture.readout"))
    kind = importlib.import_module(f"{package}.collision").Collision
    features, head = torch.randn(3, 4, 5), torch.randn(7, 5)
    found = readout.decode(features, head, torch.tensor([1, 2, 3, -1]), quantities=[kind])
    wanted = torch.softmax((features @ head.T).double(), dim=-1).square().sum(-1)
    np.testing.assert_allclose(found["collision"], wanted.numpy(), rtol=1e-5)


def test_the_guide_has_a_chapter_for_every_kind_of_extension() -> None:
    for heading in ("An exit rule", "A statistic", "A readout", "A projection", "A chart", "An architecture"):
        compile(example(heading), heading, "exec")
