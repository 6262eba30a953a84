"""What a reader does and sees, in terms of the page: open it, run, move a slider, look at a figure's axes and camera."""

from typing import Any

from playwright.sync_api import Page

_FIGURE = "document.querySelector('.st-key-panel_{name} .loopscope-figure')"
_MARKS = "[Array.from(t.x), Array.from(t.y)]"


def open_page(page: Page, address: str) -> None:
    """Go to an address of the app and wait until its figures are drawn."""
    page.goto(address)
    page.wait_for_selector("[data-drawn]")
    settle(page)


def settle(page: Page) -> None:
    """Wait until the page is not running and stays so for a moment, in which late messages of figures arrive."""
    for _ in range(2):
        page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
        page.wait_for_timeout(500)


def runs(page: Page) -> str:
    """The run counter."""
    return page.inner_text(".st-key-run_counter p").strip()


def run(page: Page, *, expect: int) -> None:
    """Press Run and wait until the counter says so many runs."""
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function(f"document.querySelector('.st-key-run_counter p')?.innerText.trim() === 'runs: {expect}'")
    settle(page)


def type_into(page: Page, label: str, text: str) -> None:
    """Put text into a field, as a reader who then goes on with something else."""
    page.get_by_label(label, exact=True).fill(text)


def press(page: Page, key: str, *, on: str, times: int = 1) -> None:
    """Press a key on the slider with that widget key."""
    thumb = page.locator(f".st-key-{on} [role=slider], .st-key-{on} input[type=range]").first
    thumb.focus()
    for _ in range(times):
        page.keyboard.press(key)
    settle(page)


def see(page: Page, name: str, expression: str) -> Any:
    """A JavaScript expression about the figure ``g`` of a panel."""
    return page.evaluate(f"(() => {{ const g = {_FIGURE.format(name=name)}; return {expression}; }})()")


def wait_for_other_exits(page: Page, name: str, rule: str, before: list[list[float]]) -> None:
    """Wait until the exit marks of a rule are others than before, and the page is at rest."""
    found = f"{_FIGURE.format(name=name)}?._fullData?.find((t) => t.name === 'exit: {rule}')"
    page.wait_for_function(
        f"(before) => {{ const t = {found}; return t && JSON.stringify({_MARKS}) !== JSON.stringify(before); }}", arg=before
    )
    settle(page)


def exits(page: Page, name: str, rule: str) -> list[list[float]]:
    """Coordinates of the exit marks of a rule, by the rule's title, in x, then y."""
    return see(page, name, f"((t) => {_MARKS})(g._fullData.find((t) => t.name === 'exit: {rule}'))")


def drag(page: Page, name: str, start: tuple[float, float], end: tuple[float, float], *, area: str = ".nsewdrag") -> None:
    """Drag with the mouse across a figure, from and to given shares of the drawing area."""
    place = page.locator(f".st-key-panel_{name} {area}").first
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    (x0, y0), (x1, y1) = ((box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in (start, end))
    page.mouse.move(x0, y0)
    page.mouse.down()
    page.mouse.move((x0 + x1) / 2, (y0 + y1) / 2, steps=4)
    page.mouse.move(x1, y1, steps=4)
    page.mouse.up()
    page.wait_for_timeout(800)
    settle(page)
