"""The page under AppTest is on one's own machine: paths are open unless a test says otherwise."""

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from analysis import study


@pytest.fixture(autouse=True)
def own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """AppTest does not read app/.streamlit/config.toml, where the address is the loopback's."""
    from app import access

    def own(address: str | None) -> bool:
        return False

    monkeypatch.setenv(access.ROOTS, "")  # remembered, so that whatever the page sets is taken back
    monkeypatch.delenv(access.ROOTS)
    monkeypatch.setattr(access, "beyond_loopback", own)


@pytest.fixture
def toy_runs(monkeypatch: pytest.MonkeyPatch) -> "Iterator[list[study.Request]]":
    """Runs are made up instead of computed, and the requests that came are kept."""
    from analysis import study
    from app import cache
    from tests.toys import toy_trajectory

    asked: list[study.Request] = []

    def run(request: study.Request, **options: Any) -> study.Run:
        if request == study.bundled_request():
            return real(request, **options)
        asked.append(request)
        made = toy_trajectory(loops=request.loops[0], tokens=6, seed=request.seed)
        return study.Run(request=request.to_json(), trajectories=(made,))

    real = study.run
    monkeypatch.setattr(study, "run", run)
    cache.shelf.clear()
    yield asked
    cache.shelf.clear()


@pytest.fixture
def gated_runs(toy_runs: "list[study.Request]", monkeypatch: pytest.MonkeyPatch) -> "Iterator[Callable[[int], None]]":
    """Made-up runs of which only so many come before one hangs until it is cancelled; the fixture sets how many."""
    from analysis import study

    quick, allowed, told = study.run, [0], threading.Event()

    def run(request: study.Request, *, cancel: Callable[[], bool] = lambda: False, **options: Any) -> study.Run:
        while request != study.bundled_request() and len(toy_runs) >= allowed[0]:
            if cancel():
                raise study.Cancelled("The run was cancelled; nothing of it was kept.")
            if told.wait(0.01):
                raise study.Cancelled("The test is over.")
        return quick(request, **options)

    def allow(count: int) -> None:
        allowed[0] = count

    monkeypatch.setattr(study, "run", run)
    yield allow
    told.set()
