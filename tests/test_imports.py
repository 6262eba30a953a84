"""Who imports whom: the contracts hold, every module can be imported, and torch stays away until it is needed."""

import importlib
import json
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
    "contracts"
]


def fresh(code: str, *arguments: str) -> str:
    """What a new interpreter prints; it starts elsewhere, so that only what is installed can be found."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_contracts() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([str(script), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


def modules_below(name: str) -> list[str]:
    """The module, and all that a package holds."""
    paths = getattr(importlib.import_module(name), "__path__", None)
    return [name] if paths is None else [name, *(info.name for info in pkgutil.walk_packages(paths, f"{name}."))]


def installed_modules() -> list[str]:
    # The page's script runs at import, as Streamlit wants it: the page tests run it.
    return [m for top in ("app", "analysis", "model", "assets") for m in modules_below(top) if m != "app.streamlit_app"]


def test_every_module_can_be_imported_alone_or_together() -> None:
    fresh(
        "import importlib, json, sys; [importlib.import_module(m) for m in json.loads(sys.argv[1])]",
        json.dumps(installed_modules()),
    )


def torch_free() -> list[str]:
    named = next(contract["source_modules"] for contract in CONTRACTS if contract["id"] == "torch-free")
    below = [module for name in named for module in modules_below(name)]
    return [*below, "analysis.study", "analysis.tables", "analysis.prompts", "app.cli", "app.commands"]


def test_torch_is_absent_after_everything_that_the_first_paint_needs() -> None:
    code = (
        "import importlib, json, sys\n"
        "for name in json.loads(sys.argv[1]):\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules:\n"
        "        print(name); break\n"
    )
    assert fresh(code, json.dumps(torch_free())) == ""


def test_the_check_for_torch_can_fail() -> None:
    assert fresh("import sys, model.runner; print('torch' in sys.modules)") == "True"


def test_the_first_screens_run_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "from analysis import study\n"
        "request = study.bundled_request()\n"
        "run = study.run(request)\n"
        "study.card(request.checkpoint), study.estimate(request), study.bundled_others()\n"
        "print(len(run.trajectories), 'torch' in sys.modules)\n"
    )
    assert fresh(code) == "1 False"


@pytest.mark.parametrize("name", ["loopscope", "loopscope.trajectory", "model.capture.trajectory"])
def test_record_types_come_without_torch_under_both_names(name: str) -> None:
    assert fresh(f"import sys, {name}; print('torch' in sys.modules)") == "False"


def test_loopscope_works_beside_somebodys_model_py(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("x = 1\n")
    (tmp_path / "theirs.py").write_text("import model, loopscope.trajectory as t\nprint(model.x, t.Run.__name__)\n")
    done = subprocess.run([sys.executable, "theirs.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("1 Run", "")
