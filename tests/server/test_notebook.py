"""Notebook magics in a real IPython shell; skipped where IPython is not installed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from server.conftest import bid
from slicemill.server.service import MillService

pytest.importorskip("IPython", reason="IPython is not installed: pip install ipython")

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


@pytest.fixture
def shell(client: httpx.Client) -> Iterator[InteractiveShell]:
    made = InteractiveShell.instance()
    made.run_line_magic("load_ext", "slicemill_client.notebook")
    made.run_line_magic("esl_connect", str(client.base_url))
    yield made
    made.run_line_magic("unload_ext", "slicemill_client.notebook")
    InteractiveShell.clear_instance()


def shown(shell: InteractiveShell, code: str) -> list[Any]:
    """Return the outputs of a notebook cell; raise an error that the cell raises."""
    with capture_output() as captured:
        result = shell.run_subtask(code)
    result.raise_error()
    return [output.data for output in captured.outputs]


def test_statements_and_ad_hoc_queries_display_tables(shell: InteractiveShell, service: MillService) -> None:
    bid(service, (1, 50, 1))
    (table,) = shown(shell, "%esl SELECT item, price FROM dear")
    assert "<th>item</th>" in table["text/html"] and "<td>50</td>" in table["text/html"]
    subtask = "%%esl\nCREATE QUERY cheap AS SELECT item FROM bid WHERE price < 5;\nSHOW QUERIES"
    made, listed = shown(shell, subtask)
    assert "cheap" in made["text/html"] and "cheap" in listed["text/html"]
    assert "cheap" in service.mill.queries


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("%esl SELECT nothing FROM dear", "nothing"),
        ("%esl CREATE QUERY x AS SELECT item FROM bidd", "did you mean bid?"),
        ("%esl_plan nobody", "there is no stream, query"),
        ("%esl_live nobody 1", "there is no"),
        ("%esl_live dear soon", "seconds"),
    ],
)
def test_an_error_is_displayed_without_a_traceback(shell: InteractiveShell, code: str, told: str) -> None:
    outputs = shown(shell, code)
    assert told in outputs[-1]["text/html"]


def test_a_plan_is_displayed_as_a_drawing(shell: InteractiveShell) -> None:
    for code in ("%esl_plan dear", "%esl_plan"):
        (drawing,) = shown(shell, code)
        assert "dear" in drawing["image/svg+xml"]


def test_live_results_are_redrawn_when_rows_arrive(shell: InteractiveShell, service: MillService) -> None:
    ended = threading.Event()

    def bids() -> None:
        number = 0
        while not ended.wait(0.05):
            number += 1
            bid(service, (number, 50, number))

    thread = threading.Thread(target=bids, daemon=True)
    thread.start()
    outputs = shown(shell, "%esl_live dear 1")
    ended.set()
    thread.join()
    assert "waiting for results of dear" in outputs[0]["text/html"]
    assert "<th>item</th>" in outputs[-1]["text/html"]


def test_live_results_of_a_query_without_rows_end_after_the_given_time(shell: InteractiveShell) -> None:
    (waiting,) = shown(shell, "%esl_live dear 0.2")
    assert "waiting for results of dear" in waiting["text/html"]
