"""axe-core on every page, light and dark: no serious or critical finding."""

from typing import Any, cast

import pytest
from axe_core_python.sync_playwright import Axe  # pyright: ignore[reportMissingTypeStubs]
from playwright.sync_api import Browser

from tests.e2e import screen

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize("path", ["", "two_scales", "exit_rules", "trade_off"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_has_no_serious_finding(browser: Browser, server: str, path: str, theme: Any) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=theme)
    page = context.new_page()
    page.set_default_timeout(60_000)
    screen.open_page(page, f"{server}/{path}")
    if theme == "dark":
        colours = "[...document.querySelectorAll('.loopscope-figure')].map((g) => g._fullLayout?.font.color)"
        page.wait_for_function(f"{colours}.every((colour) => colour === '#ECEEF2')")
    found = cast("dict[str, Any]", Axe().run(page))  # pyright: ignore[reportUnknownMemberType]
    serious = [
        f"{finding['id']}: {node['html'][:120]}"
        for finding in found["violations"]
        if finding["impact"] in ("serious", "critical")
        for node in finding["nodes"]
    ]
    context.close()
    assert not serious
