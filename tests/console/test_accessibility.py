"""Accessibility of every page by axe, in both themes and on a phone, and its width on a phone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from console.browser import AXE, PHONE

# By route: the title, and an element that exists once the page is filled.
PAGES = {
    "overview": ("Overview", "tbody tr"),
    "graph": ("Graph", ".node"),
    "graph/first_minute_bids": ("Graph of first_minute_bids", "aside .cost"),
    "query": ("Queries", ".card a"),
    "query/hot_items": ("hot_items", ".chart"),
    "query/hot_items?tab=plan": ("hot_items", "pre.wide"),
    "query/hot_items?tab=statement": ("hot_items", ".versions li"),
    "editor": ("Editor", ".cm-content"),
    "scheduling": ("Scheduling", "tbody tr"),
    "models": ("Models & shedding", "img.picture"),
    "errors": ("Errors & alerts", "tbody .danger"),
    "settings": ("Settings", "form"),
    "slices/first_minute_bids": ("Slices", "rect.slice"),
}
# Themes differ only in their colours.
LOOKS: dict[str, dict[str, Any]] = {"light": {}, "dark": {"runOnly": ["color-contrast"]}, "phone": {}}
FILLED_MS = 60_000  # slices appear with the first checkpoint, after ten seconds or more
_RUN = "rules => axe.run(rules).then(found => found.violations)"


@pytest.mark.parametrize("look", LOOKS)
def test_no_page_has_accessibility_violations(page: Page, busy: str, look: str) -> None:
    page.emulate_media(color_scheme="dark" if look == "dark" else "light")
    if look == "phone":
        page.set_viewport_size(PHONE)
    page.goto(busy)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = []
    for place, (title, filled) in PAGES.items():
        page.goto(f"{busy}/#/{place}")
        expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
        expect(page.locator(f"main {filled}").first).to_be_visible(timeout=FILLED_MS)
        for violation in page.evaluate(_RUN, LOOKS[look]):
            where = violation["nodes"][0]["html"][:200]
            found.append(f"{place}: {violation['impact']} {violation['id']}, {violation['help']}: {where}")
        if look == "phone" and page.evaluate("() => document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{place}: is wider than the screen")
    assert found == []
