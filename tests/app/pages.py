"""The page under AppTest: opened, run, and read without a browser."""

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Slider

from analysis.exit_rule import exit_rules_by_family

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "app" / "streamlit_app.py"
VIEWS = ("views/trajectories.py", "views/two_scales.py", "views/exit_rules.py", "views/trade_off.py")
SECONDS = 90


def opened(**query: str) -> AppTest:
    """A fresh session on the first page, with query parameters as a link would bring them."""
    page = AppTest.from_file(str(SCRIPT), default_timeout=SECONDS)
    for name, value in query.items():
        page.query_params[name] = value
    return page.run()


def finished(page: AppTest) -> AppTest:
    """The page once its run is over."""
    end = time.monotonic() + SECONDS
    while page.session_state.get("_job") is not None:
        assert time.monotonic() < end, "the run did not end"
        time.sleep(0.1)
        page.run()
    return page


def read(page: AppTest) -> AppTest:
    """The page once the card of its checkpoint is read, or has turned out not to be one."""
    end = time.monotonic() + SECONDS
    while page.session_state.get("_reading") is not None:
        assert time.monotonic() < end, "the card was not read"
        time.sleep(0.05)
        page.run()
    return page


def pressed_run(page: AppTest) -> AppTest:
    """Press Run and wait for the end of the run."""
    page.button(key="run").click().run()
    return finished(page)


def typed(page: AppTest, checkpoint: object) -> AppTest:
    """Choose a checkpoint of the list, or type its path."""
    name = str(checkpoint)
    if name.startswith(("demo@", "upload:")):
        return page.selectbox(key="checkpoint").set_value(name).run()
    page.selectbox(key="checkpoint").set_value("path").run()
    return page.text_input(key="checkpoint_path").set_value(name).run()


def named(page: AppTest, checkpoint: object) -> AppTest:
    """Choose a checkpoint or type its path, and wait until its card is read."""
    return read(typed(page, checkpoint))


def card(page: AppTest) -> str:
    """HTML of the checkpoint's card; "" while there is none."""
    shown = [element.proto.body for element in page.get("html") if "loopscope-card" in element.proto.body]
    return shown[0] if shown else ""


def errors(page: AppTest) -> str:
    """All errors on the page, as text."""
    return " ".join(error.value.replace("\\", "") for error in page.error)


def infos(page: AppTest) -> str:
    """All neutral notes on the page, as text."""
    return " ".join(info.value.replace("\\", "") for info in page.info)


def captions(page: AppTest) -> str:
    """All captions on the page, as text."""
    return " ".join(caption.value.replace("\\", "") for caption in page.caption)


def mark_rules(page: AppTest, names: Collection[str]) -> AppTest:
    """Mark these exit rules and no others."""
    for pills in page.pills:
        family = str(pills.key).removeprefix("rules.")
        if family != pills.key:
            pills.set_value([name for name, kind in exit_rules_by_family().items() if kind.family == family and name in names])
    return page.run()


def level(page: AppTest, rule: str) -> "Slider[Any]":
    """The slider over the quantiles of a rule's scores."""
    return next(slider for slider in page.slider if str(slider.key).startswith(f"{rule}.level."))


def as_sent(slider: "Slider[Any]") -> WidgetState:
    """What a browser sends of a slider."""
    return slider.set_value(slider.value)._widget_state  # pyright: ignore[reportPrivateUsage]


def sent_again(page: AppTest, old: WidgetState) -> AppTest:
    """The page after a message that still carries a slider which is not there any more, as a quick browser may send it."""
    states = page._tree.get_widget_states()  # pyright: ignore[reportPrivateUsage]
    states.widgets.append(old)
    return page._run(states)  # pyright: ignore[reportPrivateUsage]


def stopped(page: AppTest, job: str, *, after: Callable[[], bool]) -> AppTest:
    """Cancel a job that is followed under this name as soon as ``after`` says so, and wait for its end."""
    wait_until(after)
    page.run().button(key=f"cancel_{job}").click().run()
    return settled(page, job)


def wait_until(come: Callable[[], bool]) -> None:
    """Wait for something that a thread of the page does."""
    end = time.monotonic() + SECONDS
    while not come():
        assert time.monotonic() < end, "the page's work did not come so far"
        time.sleep(0.02)


def settled(page: AppTest, job: str) -> AppTest:
    """The page once a job that is followed under this name is over."""
    end = time.monotonic() + SECONDS
    while page.session_state.get(f"_{job}_job") is not None:
        assert time.monotonic() < end, f"{job} did not end"
        time.sleep(0.05)
        page.run()
    return page


def tables(page: AppTest) -> list[dict[str, list[str]]]:
    """The small tables on the page, as words by column."""
    found: list[dict[str, list[str]]] = []
    for element in page.table:
        frame: Any = element.value
        found.append({str(n).replace("\\", ""): [str(v).replace("\\", "") for v in frame[n]] for n in frame.columns})
    return found


def titles(page: AppTest) -> list[str]:
    """Titles of the panels on the page, as Markdown."""
    return [header.value for header in page.header]


def counter(page: AppTest) -> str:
    """The run counter."""
    return page.container(key="run_counter").caption[0].value
