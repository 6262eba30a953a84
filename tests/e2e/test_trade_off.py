"""The trade-off in a real browser: a text is swept, a point is clicked, and its threshold stands on the page Exit rules."""

import pytest
from playwright.sync_api import Page

from tests.e2e import screen

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_PLACE = """((t) => {
  const box = g.getBoundingClientRect(), size = g._fullLayout._size;
  const i = Math.floor(t.x.length / 2);
  return [box.left + size.l + t.xaxis_of.l2p(t.x[i]), box.top + size.t + t.yaxis_of.l2p(t.y[i])];
})(Object.assign(Object.create(g._fullData.find((t) => t.name === 'TITLE')),
  {xaxis_of: g._fullLayout.xaxis, yaxis_of: g._fullLayout.yaxis}))"""


def test_a_point_of_a_swept_text_becomes_the_threshold_of_its_rule(page: Page, server: str) -> None:
    screen.open_page(page, f"{server}/trade_off?text.tokens=48&loops=6")
    page.get_by_role("button", name="Sweep", exact=True).click()
    page.wait_for_selector("text=Swept: report.txt, 8 windows", timeout=240_000)
    screen.settle(page)
    title = "acceleration"
    assert screen.see(page, "pareto", "g._fullData.filter((t) => t.fill === 'toself').length") > 0  # intervals over windows
    page.locator(".st-key-panel_pareto .loopscope-figure").scroll_into_view_if_needed()
    x, y = screen.see(page, "pareto", _PLACE.replace("TITLE", title))
    page.mouse.move(x, y)
    page.wait_for_timeout(300)
    page.mouse.click(x, y)
    page.wait_for_function("location.search.includes('point=')")
    screen.settle(page)
    assert "point.rule=acceleration" in page.url
    assert page.locator(".st-key-point_settings input").first.input_value() == title

    page.get_by_role("button", name="Apply to Exit rules").click()
    page.wait_for_function("location.search.includes('acceleration.threshold=')")
    screen.settle(page)
    wanted = page.url.split("acceleration.threshold=")[1].split("&")[0]
    page.get_by_role("link", name="Open Exit rules").click()
    page.wait_for_selector(".st-key-panel_exit_histogram [data-drawn]")
    screen.settle(page)
    assert f"acceleration.threshold={wanted}" in page.url
    labels = screen.see(page, "rule", "JSON.stringify(g.layout)")
    assert f"{float(wanted):.4g}" in labels
    screen.press(page, "ArrowRight", on="acceleration-level", times=2)
    assert f"acceleration.threshold={wanted}" not in page.url

    page.get_by_role("link", name="Trade-off").first.click()
    page.wait_for_selector(".st-key-panel_pareto [data-drawn]")
    assert "Swept: report.txt, 8 windows" in page.inner_text("[data-testid=stMain]")


def test_a_calibration_is_seen_where_it_runs_and_elsewhere_and_its_cancel_is_no_error(page: Page, server: str) -> None:
    screen.open_page(page, f"{server}/exit_rules?goal.tokens=4096&loops=24")
    page.locator(".st-key-calibrate button").first.click()
    page.locator(".st-key-calibrate_now button").click()
    page.wait_for_selector(".st-key-cancel_calibration button")
    page.locator(".st-key-calibrate_now button").wait_for(state="hidden")  # else it would lie over the progress
    page.get_by_role("link", name="Trade-off").first.click()
    page.wait_for_selector("text=A calibration is on its way")
    page.locator(".st-key-cancel_calibration button").click()
    page.wait_for_selector("text=A calibration is on its way", state="hidden")
    page.get_by_role("link", name="Exit rules").first.click()
    page.wait_for_selector("text=The calibration was stopped")
    screen.settle(page)
    kinds = page.locator("[data-testid=stMain] [data-testid=stAlert]").all_inner_texts()
    assert [text for text in kinds if "No threshold was changed" in text]
    assert not page.locator("[data-testid=stAlertContentError]").count()
