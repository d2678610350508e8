"""The interactive shell against a real server: input and output."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from rich.console import Console
from typer.testing import CliRunner

import slicemill
from server.conftest import bid, mill, service  # noqa: F401
from slicemill.cli import app
from slicemill.cli.shell import (
    OutputFormat,
    QuitShell,
    ServerNames,
    Shell,
    WordCompleter,
    is_complete,
    show_result,
)
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from slicemill_client import Connection, StatementResult


@pytest.fixture
def connection(service: MillService) -> Iterator[Connection]:  # noqa: F811
    with (
        serving(service, ServerSockets()) as url,
        slicemill.connect(url) as made,
    ):
        yield made


@pytest.fixture
def seen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def shell(connection: Connection, seen: io.StringIO) -> Shell:
    return Shell(connection, Console(file=seen, width=100))


def test_rows_are_printed_as_a_table_and_errors_are_underlined(shell: Shell, seen: io.StringIO) -> None:
    assert shell.run("DESCRIBE dear;")
    assert "price   INT" in seen.getvalue()
    assert not shell.run("CREATE QUERY q AS\n  SELECT itm FROM bid;")
    assert "    SELECT itm FROM bid;\n           ^^^" in seen.getvalue()
    assert "hint: did you mean item?" in seen.getvalue()


def test_live_results_can_be_watched(shell: Shell, service: MillService, seen: io.StringIO) -> None:  # noqa: F811
    bid(service, (1, 20, 1))
    shell.watch("dear", stopped=lambda: True)
    assert "results of dear; stop with ctrl-c" in seen.getvalue()
    shell.run("\\watch deer")
    assert "did you mean dear" in seen.getvalue()


def test_shell_commands_begin_with_a_backslash(shell: Shell, seen: io.StringIO, tmp_path: Path) -> None:
    shell.run("\\?")
    assert "\\watch" in seen.getvalue()
    shell.run("\\d dear")
    shell.run("\\plan dear")
    assert "price > 10" in seen.getvalue()
    script = tmp_path / "more.esl"
    script.write_text("CREATE QUERY all_bids AS SELECT item FROM bid;")
    assert shell.run(f"\\i {script}")
    assert "query all_bids" in seen.getvalue()
    assert not shell.run(f"\\i {tmp_path / 'none.esl'}")
    with pytest.raises(QuitShell):
        shell.run("\\q")


@pytest.mark.parametrize(
    ("text", "whole"),
    [("SELECT 1", False), ("SELECT 1;", True), ("\\d", True), ("", True), ("CREATE AGGREGATE f() { }", True)],
)
def test_a_statement_ends_with_a_semicolon_or_brace(text: str, whole: bool) -> None:
    assert is_complete(text) is whole


def test_names_and_keywords_are_completed(connection: Connection) -> None:
    completer = WordCompleter(ServerNames(connection), ["\\watch"])

    def completed(text: str) -> list[str]:
        return [found.text for found in completer.get_completions(Document(text), CompleteEvent())]

    assert completed("SELECT * FROM de") == ["dear", "DESCRIBE"]
    assert completed("SELECT pri") == ["price"]
    assert completed("\\w") == ["\\watch"]
    assert "SHOW QUERIES" in completed("sho")


def test_the_sql_and_watch_commands_use_a_server(connection: Connection) -> None:
    def told(*arguments: str, status: int = 0) -> str:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == status, done.output
        return done.output

    assert "price INT" in " ".join(told("sql", connection.url, "-c", "DESCRIBE dear").split())
    assert told("sql", connection.url, "-c", "DESCRIBE dear", "--format", "csv") == (
        "column,type\nitem,INT\nprice,INT\n"
    )
    told("sql", connection.url, "-c", "DESCRIBE deer", status=1)
    url = ("--url", connection.url)
    told("query", "add", "cheap", "SELECT item FROM bid WHERE price < 5", *url)
    assert "cheap" in told("query", "ls", *url)
    assert "price < 5" in told("query", "explain", "cheap", *url)
    assert "dropped" in told("query", "drop", "cheap", *url)
    assert "running" in told("status", connection.url)


@pytest.mark.parametrize("width", [80, 60, 30])
def test_no_word_of_a_listing_is_truncated_at_any_width(
    connection: Connection,
    service: MillService,  # noqa: F811
    width: int,
) -> None:
    bid(service, (1, 20, 1))
    seen = io.StringIO()
    assert Shell(connection, Console(file=seen, width=width)).run("SHOW QUERIES")
    lines = seen.getvalue().splitlines()
    words = seen.getvalue().split()
    assert max(map(len, lines)) <= width
    assert {"name", "dear", "state", "running", "version"} <= set(words)
    assert "error" not in words, "what has no value anywhere is left out"


def test_machine_readable_results_contain_only_rows(
    connection: Connection,
    service: MillService,  # noqa: F811
    seen: io.StringIO,
) -> None:
    bid(service, (1, 20, 1))
    shell = Shell(connection, Console(file=seen, width=100), OutputFormat.json)
    shell.watch("dear", stopped=lambda: seen.getvalue() != "", since=0)
    assert [json.loads(line)["item"] for line in seen.getvalue().splitlines()] == [1]


def test_a_listing_of_queries_with_long_names_fits_in_80_columns() -> None:
    names = ["name", "state", "rows", "rows_waiting", "p50_ms", "p99_ms", "failures", "version"]
    row = ("average_selling_price", "backfilling", 123456, 1234, 1234.5, 12345.6, 0, 1)
    result = StatementResult(
        "SHOW QUERIES", "", [(name, "") for name in names], [dict(zip(names, row, strict=True))]
    )
    seen = io.StringIO()
    show_result(Console(file=seen, width=80), result)
    lines = seen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "row 1" not in lines[0]
    assert {"backfilling", "123456", "1,234.5", "12,345.6"} <= set(seen.getvalue().split())


def test_a_wide_table_truncates_neither_timestamps_nor_headers_that_fit() -> None:
    at, text = "2026-01-31T12:00:00.123456Z", "a description of several words that takes more than a line"
    row = {"_ts": at, "name": "turnover_by_channel", "text": text, "rows_read": 42}
    result = StatementResult("SELECT", "", [(name, "") for name in row], [row])
    seen = io.StringIO()
    show_result(Console(file=seen, width=80), result)
    lines = seen.getvalue().splitlines()
    assert lines[0].split() == ["_ts", "name", "text", "rows_read"]
    assert at in lines[1] and max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (OutputFormat.table, ["item  price", "   1     20", "   2     30", "item    price", "   3  1000000"]),
        (OutputFormat.csv, ["item,price", "1,20", "2,30", "3,1000000"]),
    ],
)
def test_the_header_is_repeated_only_if_a_column_becomes_wider(
    connection: Connection,
    service: MillService,  # noqa: F811
    seen: io.StringIO,
    form: OutputFormat,
    expected: list[str],
) -> None:
    for row in ((1, 20, 1), (2, 30, 2), (3, 1_000_000, 3)):
        bid(service, row)
    shell = Shell(connection, Console(file=seen, width=100), form)
    shell.watch("dear", stopped=lambda: "1000000" in seen.getvalue(), since=0)
    lines = [line.rstrip() for line in seen.getvalue().splitlines()]
    separator = "," if form is OutputFormat.csv else "  "
    assert [line.partition(separator)[2].strip() for line in lines if "ctrl-c" not in line] == [
        line.strip() for line in expected
    ]
