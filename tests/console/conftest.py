"""Browser and servers of the console's tests; where something is missing, one line says what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from console.browser import browser, missing
from console.demo import auction, console_server

_HERE = Path(__file__).parent
expect.set_options(timeout=20_000)  # machines may be busy; whatever is there is found at once
# What Chromium itself reports when a server is stopped on purpose, asks for a token, or has dropped a query.
_EXPECTED = (
    "404 (Not Found)",
    "ERR_CONNECTION_REFUSED",
    "ERR_EMPTY_RESPONSE",
    "ERR_INCOMPLETE_CHUNKED",
    "401",
    "400 (Bad",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing()
    for item in items:
        if reason is not None and _HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if (reason := missing()) is not None:
        terminalreporter.write_line(f"The tests of the console were skipped: {reason}.")


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def page(chrome: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong unseen."""
    context = chrome.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(20_000)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    yield opened
    context.close()
    unexpected = [text for text in problems if not any(known in text for known in _EXPECTED)]
    assert unexpected == []


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on which the queries of the auction example run."""
    with console_server(tmp_path_factory.mktemp("busy"), auction()) as url:
        yield url
