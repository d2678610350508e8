"""What commands show of a mill and of its home, and that a home's faults are told before Spark starts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from slicemill.api.status import RowRates, problems, render_mill
from slicemill.cli import app
from slicemill.cli import live_table as engine_console
from slicemill.cli.live_table import logs_table
from slicemill.errors import SlicemillError
from slicemill.runtime import spark_session as session
from slicemill.storage.home import Home
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, rows_as_table

SCRIPT = """
CREATE STREAM bid (item int, price int) ORDER BY current_time;
CREATE QUERY dear AS SELECT item FROM bid WHERE price > 10;
"""


def shown(table: object) -> str:
    console = Console(width=200)
    with console.capture() as text:
        console.print(table)
    return text.get()


def run(home: Path, *options: str) -> Exception | None:
    script = home.with_suffix(".esl")
    script.write_text(SCRIPT)
    problem = CliRunner().invoke(app, ["run", str(script), "--home", str(home), *options]).exception
    return problem if isinstance(problem, Exception) else None


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(master: str | None, settings: Mapping[str, str]) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "begin_session", start)


@pytest.mark.usefixtures("no_spark")
def test_a_locked_home_is_told_before_spark_starts(tmp_path: Path) -> None:
    other = Home(tmp_path / "home")
    other.open()
    try:
        problem = run(tmp_path / "home")
        assert isinstance(problem, SlicemillError)
        assert str(tmp_path / "home") in str(problem)
    finally:
        other.close()


@pytest.mark.usefixtures("no_spark")
def test_a_home_of_another_format_is_told_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "FORMAT").write_text("99\n")
    problem = run(tmp_path / "home")
    assert isinstance(problem, SlicemillError)
    assert "has FORMAT 99" in str(problem)


@pytest.mark.usefixtures("no_spark")
def test_a_query_that_means_something_else_by_now_is_told_before_spark_starts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with fed_mill(home, Clock(), inline_pool()) as mill:
        mill.execute(SCRIPT.replace("price > 10", "price > 20"))
        mill.open()
    told = str(run(home))
    assert f"3:1: error: query dear is kept in {home}, and its WHERE has changed: it was SELECT item" in told
    assert "hint: write CREATE OR REPLACE QUERY, or give this one another name" in told
    with fed_mill(home, Clock(), inline_pool()) as mill:
        mill.execute("DROP QUERY dear")
    # Now it is Spark's turn.
    with pytest.raises(AssertionError, match="Spark was started"):
        raise run(home) or AssertionError("nothing happened")


@pytest.mark.parametrize("as_json", [False, True])
def test_ad_hoc_queries_are_answered_at_the_end_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    asked = """CREATE VIEW recent AS SELECT item, price FROM bid [ROWS 2];
    CREATE QUERY most AS SELECT max(price) AS most FROM recent;"""
    with fed_mill(tmp_path, Clock(1_000_000), inline_pool()) as mill:
        mill.execute(SCRIPT + asked)
        mill.open()
        mill.feed("bid", rows_as_table(mill, "bid", [(1, 500), (2, 50), (3, 60)]))
        mill.dispatcher.run_all()
        if as_json:
            engine_console.ResultLines(mill, mill.home.epoch, sys.stdout).print_answers()
        else:
            engine_console._show_results(mill, 5)
    lines = capsys.readouterr().out.splitlines()
    if as_json:
        assert [json.loads(line) for line in lines] == [{"query": "most", "_ts": None, "most": 60}]
    else:
        assert "dear: 3 rows" in lines and lines[-4:-1] == ["most: 1 row", "time  most", "        60"]


def test_options_of_run_reach_the_mill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def begin(master: str | None, settings: Mapping[str, str]) -> str:
        given["settings"] = settings
        return f"a session at {master}"

    def make(spark: str, home: Path, **options: Any) -> None:
        given.update(options, spark=spark, home=home)
        raise SlicemillError("that is enough")

    monkeypatch.setattr(session, "begin_session", begin)
    monkeypatch.setattr(engine_console, "Mill", make)
    run(
        tmp_path / "home",
        "--execution",
        "jobs",
        "--durability",
        "machine",
        "--subtasks",
        "3",
        "--master",
        "yarn",
        "--packages",
        "org.example:source:1.0",
        "--conf",
        "spark.cores.max=4",
    )
    progress = given.pop("progress")
    assert callable(progress)
    assert given == {
        "spark": "a session at yarn",
        "settings": {"spark.jars.packages": "org.example:source:1.0", "spark.cores.max": "4"},
        "home": tmp_path / "home",
        "execution": "jobs",
        "durability": "machine",
        "subtasks": 3,
    }


def test_logs_are_listed_with_what_they_hold(tmp_path: Path) -> None:
    clock = Clock(1_000_000)
    with fed_mill(tmp_path, clock, inline_pool()) as mill:
        mill.execute(SCRIPT)
        mill.open()
        mill.feed("bid", rows_as_table(mill, "bid", [(1, 5), (2, 50), (3, 500)]))
        mill.dispatcher.run_all()
        # Beside a mill at work.
        lines = {line.split()[0]: line.split()[1:] for line in shown(logs_table(tmp_path)).splitlines()}
    assert lines["dear"][:2] == ["1", "2"]
    assert lines["dear"][3:] == ["1970-01-01", "00:00:01", "1970-01-01", "00:00:01"]
    assert lines["bid_errors"] == ["0", "0", "0"]


def test_a_folder_that_is_no_home_is_told(tmp_path: Path) -> None:
    with pytest.raises(SlicemillError, match="there is no home in"):
        logs_table(tmp_path)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_figures_and_reasons_are_whole_on_a_terminal_of_any_width(width: int, tmp_path: Path) -> None:
    with fed_mill(tmp_path, Clock(1_000_000), inline_pool()) as mill:
        mill.execute(SCRIPT + "CREATE QUERY broken_by_a_divisor_of_zero AS SELECT 10 DIV item AS x FROM bid;")
        mill.open()
        mill.feed("bid", rows_as_table(mill, "bid", [(1, 5), (0, 50)] * 1_000))
        mill.dispatcher.run_all()
        console = Console(width=width)
        with console.capture() as text:
            console.print(render_mill(mill, RowRates(), 1.0))
    shown = text.get()
    assert "1,000" in shown and "2,000" in shown and "slowdown" in shown and "…" not in shown
    assert "broken_by_a_divisor_of_zero stopped: division by zero;" in shown
    assert max(map(len, shown.splitlines())) <= width


def test_what_keeps_a_mill_from_going_on_is_shown(tmp_path: Path) -> None:
    with fed_mill(tmp_path, Clock(), inline_pool()) as mill:
        mill.execute(SCRIPT)
        mill.open()
        assert problems(mill) == []
        mill.running.streams["bid"].failed("no such file", 0)
        mill.dispatcher.problem = "no space is left"
        assert problems(mill) == [
            "no space is left",
            "bid cannot be read: no such file; its queries wait, and it is tried again",
        ]
        text = shown(render_mill(mill, RowRates(), 1.0))
    assert "bid cannot be read: no such file" in text
    assert "dear" in text
