"""Every page in both themes, judged by axe; on a phone nothing is wider than the screen."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from console.browser import AXE

PAGES = {
    "overview": "Overview",
    "graph": "Graph",
    "query/hot_items": "hot_items",
    "editor": "Editor",
    "slices": "Slices",
    "scheduling": "Scheduling",
    "models": "Models & shedding",
    "errors": "Errors & late rows",
    "settings": "Settings",
}

# Another theme has other colours, and nothing else.
_RUN = "rules => axe.run(rules).then(found => found.violations)"
RULES = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_serious_violations(page: Page, busy: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    found = []
    for place, title in PAGES.items():
        page.goto(f"{busy}/#/{place}")
        expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
        expect(page.locator("main .card").first).to_be_visible()
        page.evaluate(AXE.read_text(encoding="utf-8"))
        for violation in page.evaluate(_RUN, RULES[theme]):
            if violation["impact"] in ("serious", "critical"):
                where = violation["nodes"][0]["html"][:200]
                found.append(f"{place}: {violation['id']}, {violation['help']}: {where}")
    assert found == []


def test_nothing_is_wider_than_a_phone(page: Page, busy: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    wide = []
    for place, title in PAGES.items():
        page.goto(f"{busy}/#/{place}")
        expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
        if page.evaluate("() => document.documentElement.scrollWidth > innerWidth"):
            wide.append(place)
    assert wide == []
