"""Browser and servers of the console's tests; one line reports what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from console.browser import LAPTOP, browser, missing
from console.demo import EXTRAS, auction, console_server
from console.demo import thousand as thousand_queries

_HERE = Path(__file__).parent
_WITHOUT_BROWSER = "test_front_end.py"
expect.set_options(timeout=60_000)  # Machines may be busy; elements that exist are found at once.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing()
    for item in items:
        if reason is not None and _HERE in item.path.parents and item.path.name != _WITHOUT_BROWSER:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if (reason := missing()) is not None:
        terminalreporter.write_line(f"The console's tests in a browser were skipped: {reason}.")


# A driven browser occupies an event loop of this thread, and servers occupy cores, so both end with this
# package.
@pytest.fixture(scope="package")
def chrome() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def provoked() -> list[str]:
    """Return parts of the browser errors that a test provokes; each must occur."""
    return []


@pytest.fixture
def page(chrome: Browser, provoked: list[str]) -> Iterator[Page]:
    """Yield a page that must report no error except provoked errors."""
    context = chrome.new_context(viewport=LAPTOP)
    context.set_default_timeout(60_000)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    yield opened
    context.close()
    assert [text for text in problems if not any(known in text for known in provoked)] == []
    assert [known for known in provoked if not any(known in text for text in problems)] == []


@pytest.fixture(scope="package")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a server with content for every page: the auction's queries, a model, budgets, an alert."""
    with console_server(tmp_path_factory.mktemp("busy"), auction() + EXTRAS) as url:
        yield url


@pytest.fixture(scope="package")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a server with a thousand queries."""
    with console_server(tmp_path_factory.mktemp("thousand"), thousand_queries()) as url:
        yield url
