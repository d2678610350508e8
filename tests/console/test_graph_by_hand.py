"""Graph navigation by touch, wheel and trackpad, and the legend of its colours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import CDPSession, FloatRect, Page, Route, expect

from console.browser import PHONE

CTRL = 2  # modifier key in the DevTools protocol
BIG = 2.4  # number of cores
LAST = "() => addEventListener('pointerdown', event => (window.last = event.pointerId))"
TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
LIFT = "() => dispatchEvent(new PointerEvent('pointerup', { pointerId: window.last }))"


def box_of(page: Page) -> FloatRect:
    """Return the position of the first node."""
    found = page.locator(".node rect.box").first.bounding_box()
    assert found is not None
    return found


def touch(session: CDPSession, kind: str, *points: tuple[float, float]) -> None:
    """Send a touch event and wait until the page has handled it.

    Browsers deliver moves with the next animation frame, after the protocol has answered.
    """
    fingers = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
    session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})
    session.send("Runtime.evaluate", {"expression": TWO_FRAMES, "awaitPromise": True})


def touched(page: Page, url: str) -> CDPSession:
    """Open the graph on a phone."""
    page.set_viewport_size(PHONE)
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 5})
    page.goto(f"{url}/#/graph")
    expect(page.locator(".node").first).to_be_visible()
    return session


def test_two_fingers_zoom_the_graph_about_their_midpoint(page: Page, busy: str) -> None:
    session = touched(page, busy)
    page.evaluate(LAST)
    before = box_of(page)
    x, y = before["x"] + before["width"] / 2, before["y"] + before["height"] / 2
    touch(session, "touchStart", (x - 20, y))
    touch(session, "touchStart", (x - 20, y), (x + 20, y))
    for step in range(1, 9):
        touch(session, "touchMove", (x - 20 - 2.5 * step, y), (x + 20 + 2.5 * step, y))
    after = box_of(page)
    assert after["width"] == pytest.approx(2 * before["width"], rel=0.02)
    assert after["x"] + after["width"] / 2 == pytest.approx(x, abs=2)
    assert after["y"] + after["height"] / 2 == pytest.approx(y, abs=2)
    # The remaining finger continues to move the graph without a jump; the protocol cannot lift one of two.
    page.evaluate(LIFT)
    touch(session, "touchMove", (x - 10, y + 20), (x + 40, y))
    touch(session, "touchEnd")
    moved = box_of(page)
    assert (moved["x"] - after["x"], moved["y"] - after["y"]) == pytest.approx((30, 20), abs=2)
    assert moved["width"] == pytest.approx(after["width"])
    expect(page.locator(".node.chosen")).to_have_count(0)
    assert page.evaluate("visualViewport.scale") == 1  # the zoom of the page itself is unchanged


def test_two_fingers_move_the_graph_and_a_tap_selects_a_node(page: Page, busy: str) -> None:
    session = touched(page, busy)
    before = box_of(page)
    x, y = before["x"] + before["width"] / 2, before["y"] + before["height"] / 2
    touch(session, "touchStart", (x, y), (x, y + 80))
    for step in range(1, 6):
        touch(session, "touchMove", (x + 4 * step, y), (x + 4 * step, y + 80))
    touch(session, "touchEnd")
    after = box_of(page)
    assert after["x"] - before["x"] == pytest.approx(20, abs=2)
    assert after["width"] == pytest.approx(before["width"])
    touch(session, "touchStart", (x + 20, y))
    touch(session, "touchEnd")
    expect(page.locator(".node.chosen")).to_have_count(1)


def test_a_pinch_on_a_trackpad_zooms_the_graph_and_not_the_page(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/graph")
    expect(page.locator(".node").first).to_be_visible()
    before, ratio = box_of(page), page.evaluate("devicePixelRatio")
    at = {"x": before["x"] + 5, "y": before["y"] + 5}
    session = page.context.new_cdp_session(page)
    for _ in range(10):
        turn = {"type": "mouseWheel", "deltaX": 0, "deltaY": -4, "modifiers": CTRL}
        session.send("Input.dispatchMouseEvent", turn | at)
    page.wait_for_function(
        "wide => document.querySelector('.node rect.box').getBoundingClientRect().width > wide",
        arg=1.4 * before["width"],
    )
    after = box_of(page)
    assert after["x"] == pytest.approx(before["x"], abs=5)  # the graph grows about the pointer
    assert page.evaluate("devicePixelRatio") == ratio


def test_the_legend_shows_the_cpu_use_of_the_busiest_node(page: Page, busy: str) -> None:
    def with_a_busy_node(route: Route) -> None:
        answer = route.fetch()
        graph: dict[str, Any] = answer.json()
        for node in graph["nodes"]:
            node["cpu"] = BIG if node is graph["nodes"][-1] else BIG / 4
        route.fulfill(response=answer, body=json.dumps(graph))

    legend = page.locator(".legend", has_text="load of its task")
    page.goto(f"{busy}/#/graph")
    expect(legend).to_contain_text("100 % of a core")
    page.route("**/v1/graph?*", with_a_busy_node)
    expect(legend).to_contain_text("240 % of a core")
    busiest = page.locator(".node", has_text="240 %")
    expect(busiest).to_have_count(1)
    assert float(busiest.locator("rect.load").evaluate("one => getComputedStyle(one).opacity")) == 0.85
    other = page.locator(".node", has_text="60 %").first.locator("rect.load")
    assert float(other.evaluate("one => getComputedStyle(one).opacity")) == 0.425
    page.unroute_all(behavior="wait")
