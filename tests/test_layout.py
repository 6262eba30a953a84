"""What every file of the project keeps: no place of one machine, empty package files, one sentence at the top."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def own_files() -> list[Path]:
    """Files under version control, and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def text_of(path: Path) -> str | None:
    data = path.read_bytes()
    return None if b"\0" in data else data.decode("utf-8", "replace")


# Put together from parts, so that this file does not find itself.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me", "t" + "mp"]) + r")/\w")
INDEX_HOST = re.compile(
    "|".join(["pypi" + r"\.org", "python" + r"hosted\.org", "download" + r"\.pytorch", r"--find" + "-links"])
)


@pytest.mark.parametrize(("pattern", "what"), [(MACHINE_PATH, "a path of one machine"), (INDEX_HOST, "a package index")])
def test_no_file_names_a_place(pattern: re.Pattern[str], what: str) -> None:
    found: list[str] = []
    for path in own_files():
        if path.is_relative_to(ROOT / "assets" / "corpus"):
            continue  # books may name what they like
        text = text_of(path)
        match = pattern.search(text) if text is not None else None
        if match:
            found.append(f"{path.relative_to(ROOT)}: {match.group()}")
    assert not found, f"{what}: {found}"


def test_the_patterns_find_what_they_are_for() -> None:
    assert MACHINE_PATH.search('open("/' + 'home/me/x")')
    assert not MACHINE_PATH.search("assets/home/x and https://example.com/" + "work/x")
    assert INDEX_HOST.search("https://" + "pypi" + ".org/simple")


def packages() -> list[str]:
    return [name for name in CONFIG["tool"]["setuptools"]["packages"] if not name.startswith("loopscope")]


def test_every_package_is_installed() -> None:
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in own_files()
        if path.name == "__init__.py" and path.relative_to(ROOT).parts[0] in ("app", "analysis", "model", "assets")
    }
    assert folders == set(packages())


@pytest.mark.parametrize("name", packages())
def test_package_files_are_empty(name: str) -> None:
    """Nothing runs at import; the capture package alone has exports, because it is installed as ``loopscope``."""
    text = (ROOT / name.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    assert text == "" or name == "model.capture"


def modules() -> list[Path]:
    return [p for p in own_files() if p.suffix == ".py" and p.name != "__init__.py"]


def test_every_module_opens_with_a_sentence() -> None:
    silent = [str(p.relative_to(ROOT)) for p in modules() if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]
    assert not silent


def test_no_module_is_a_drawer_for_everything() -> None:
    names = {p.name for p in modules()}
    assert not names & {"utils.py", "helpers.py", "common.py", "misc.py"}
    assert not (ROOT / "app" / "model.py").exists()  # would hide the package `model` from the page


def test_constraints_pin_exact_versions_and_cover_the_dependencies() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9_.]*", line) for line in lines)
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}
    project = CONFIG["project"]
    wanted = [*project["dependencies"], *(item for extra in project["optional-dependencies"].values() for item in extra)]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", item, maxsplit=1)[0]).lower() for item in wanted}
    assert names - {project["name"]} <= pinned  # one extra may bring another
