"""`slicemill run`: errors before Spark starts, output, and exit status."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from slicemill import cli
from slicemill.api.mill import Mill
from slicemill.api.status import watch
from slicemill.cli import live_table as console
from slicemill.runtime import spark_session as session
from slicemill.testing import inline_pool, open_mill

BIDS = (
    "CREATE STREAM bid (item int, price double, ts timestamp) ORDER BY ts USING json OPTIONS (path 'bids');\n"
)
DEAR = "CREATE QUERY dear AS SELECT item, price FROM bid WHERE price > 10;\n"
BROKEN = "CREATE QUERY broken AS SELECT 10 DIV (item - 2) AS x FROM bid WHERE price > 5;\n"
ROWS = [(1, 20.0, 1), (2, 4.0, 2), (3, 30.0, 3), (4, 3.0, 4)]
PATIENCE_S = 120.0

Run = Callable[..., int]


def write(folder: Path, name: str, *rows: tuple[int, float, int]) -> None:
    (folder / "bids").mkdir(exist_ok=True)
    lines = [
        json.dumps({"item": item, "price": price, "ts": f"2026-01-01 00:00:{second:02d}"})
        for item, price, second in rows
    ]
    # Rename the complete file, so that it appears in one step.
    (folder / "bids" / f"_{name}").write_text("".join(line + "\n" for line in lines))
    (folder / "bids" / f"_{name}").rename(folder / "bids" / name)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Return the masters of the started sessions."""
    masters: list[str | None] = []

    def begin(master: str | None, _settings: Mapping[str, str]) -> Future[Any]:
        masters.append(master)
        return Future()

    monkeypatch.setattr(session, "begin_session", begin)
    return masters


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[str | None]) -> Iterator[Run]:
    """Yield the command with workers in this process; everything except Spark is real."""

    def make(spark: object, home: Path | None, **options: Any) -> Mill:
        del spark
        return open_mill(
            home=home, pool=inline_pool(), **{k: v for k, v in options.items() if k != "execution"}
        )

    def called(script: str, *options: str) -> int:
        (tmp_path / "script.esl").write_text(script)
        monkeypatch.setattr(sys, "argv", ["slicemill", "run", "script.esl", *options])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "Mill", make)
    yield called


# -- Before Spark starts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        ("SELECT item FORM bid;", (), "did you mean FROM?"),
        (BIDS + DEAR, ("--policy", "hrn"), "there is no policy hrn"),
        (BIDS + DEAR, ("--for", "soon"), "is not a duration"),
        (BIDS + DEAR, ("--master", "sparc://here"), "is no Spark master; write local[4]"),
        (BIDS + DEAR, ("--master", "local[many]"), "is no Spark master"),
        (BIDS + DEAR, ("--master", "spark://127.0.0.1:1"), "no Spark master answers at 127.0.0.1:1"),
        (BIDS + DEAR, ("--home", "script.esl"), "script.esl cannot be a home"),
        (BIDS + DEAR, ("--home", "script.esl/home"), "cannot be a home: Not a directory"),
        (BIDS + DEAR, ("--home", "/proc/slicemill"), "/proc/slicemill cannot be a home"),
        (BIDS + DEAR, ("--metrics", "nowhere/figures.json"), "nowhere/figures.json cannot be written"),
        (BIDS.replace("'bids'", "'gone'") + DEAR, (), "stream bid: there is no file or folder gone"),
        (
            "CREATE TABLE t (a int) USING csv OPTIONS (path 'gone.csv');\n" + BIDS + DEAR,
            (),
            "table t: there is no file or folder gone.csv",
        ),
        (
            "CREATE STREAM s (a int) SOURCE 'tcp://localhost:99999'; CREATE QUERY q AS SELECT a FROM s;",
            (),
            "stream s: a TCP port is a number from 1 to 65535, not '99999'",
        ),
        (BIDS + DEAR.replace(" AS", " WITH (sink = 'jason:out') AS", 1), (), "'jason' is no kind of sink"),
        (
            BIDS + DEAR.replace(" AS", " WITH (sink = 'postgres://ada@db/shop') AS", 1),
            (),
            "a Postgres sink needs psycopg: pip install 'slicemill[postgres]'",
        ),
    ],
)
def test_errors_that_need_no_spark_are_reported_before_spark_starts(
    script: str,
    options: tuple[str, ...],
    message: str,
    run: Run,
    started: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path, "1.json", *ROWS)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert run(script, *options) == 1
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told
    assert started == []


def test_masters_of_every_kind_are_accepted() -> None:
    kinds = ["local", "local[2]", "local[*]", "local[2, 4]", "local-cluster[2,1,1024]", "yarn", "k8s://h:1"]
    for master in kinds:
        session.check_master(master)


# -- Output ------------------------------------------------------------------------------------------------


def test_the_summary_counts_unneeded_late_and_bad_rows(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "1.json", *ROWS, (5, 40.0, 1))
    with (tmp_path / "bids" / "1.json").open("a") as file:
        file.write('{"item": "six", "price": 50, "ts": "2026-01-01 00:00:06"}\n')
    assert run(BIDS + DEAR, "--for", "0s") == 0
    shown = capsys.readouterr().out
    assert "bid: read 6 rows, of which 2 no query needed, 1 came late, 1 could not be read" in shown
    assert "dear: 2 rows" in shown


def test_a_stream_without_rows_is_reported(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bids").mkdir()
    fed = "CREATE STREAM fed (a int); CREATE QUERY f AS SELECT a FROM fed;"
    assert run(BIDS + DEAR + fed, "--for", "0s") == 0
    shown = capsys.readouterr().out
    assert "bid: nothing was read; its source had no rows" in shown
    assert "fed has no SOURCE, so only a Python program can send rows to it" in shown


def test_json_output_is_one_line_for_each_row(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "1.json", *ROWS)
    assert run(BIDS + DEAR, "--for", "0s", "--json") == 0
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()] == [
        {"query": "dear", "_ts": "2026-01-01T00:00:01Z", "item": 1, "price": 20.0},
        {"query": "dear", "_ts": "2026-01-01T00:00:03Z", "item": 3, "price": 30.0},
    ]
    assert "bid: read 4 rows, of which 2 no query needed" in printed.err


def test_json_output_has_only_the_rows_of_this_run(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = []
    for number in (1, 2):
        write(tmp_path, f"{number}.json", (number, 20.0, number))
        assert run(BIDS + DEAR, "--for", "0s", "--json", "--home", "home") == 0
        items.append([json.loads(line)["item"] for line in capsys.readouterr().out.splitlines()])
    assert items == [[1], [2]]


def test_the_run_time_counts_from_the_first_read_of_the_sources(tmp_path: Path) -> None:
    """However long workers take to start, a run of zero seconds reads the existing rows."""
    from rich.console import Console

    write(tmp_path, "1.json", *ROWS)
    with open_mill(home=tmp_path / "home", folder=tmp_path, pool=inline_pool()) as mill:
        mill.execute(BIDS + DEAR)
        watching = threading.Thread(target=watch, args=(mill, 0.0, Console(stderr=True)))
        watching.start()
        watching.join(0.2)
        assert watching.is_alive()
        assert not mill.running.streams["bid"].asked
        mill.start()
        watching.join(PATIENCE_S)
        assert not watching.is_alive()
        assert mill.running.streams["bid"].counts.read == 4


# -- Exit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--for", "1h"), ("--home", "home")])
def test_a_run_ends_when_all_inputs_have_ended(
    options: tuple[str, ...], run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single file ends when it is read; a stream without a source has no input."""
    write(tmp_path, "1.json", *ROWS)
    fed = "CREATE STREAM fed (a int); CREATE QUERY f AS SELECT a FROM fed;"
    counted = "CREATE QUERY n AS SELECT count(*) AS n FROM bid [RANGE 1 DAY SLIDE 1 DAY];"
    assert run(BIDS.replace("'bids'", "'bids/1.json'") + DEAR + fed + counted, *options) == 0
    printed = capsys.readouterr()
    assert "all inputs have ended" in printed.err
    assert "dear: 2 rows" in printed.out
    assert "n: 1 row" in printed.out


def test_a_failed_query_gives_status_3_and_other_results_are_shown(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "1.json", *ROWS, (2, 6.0, 5))
    assert run(BIDS + DEAR + BROKEN, "--for", "0s") == console.QUERY_FAILED == 3
    shown = capsys.readouterr().out
    assert "stopped" in shown and "zero" in shown
    assert "dear: 2 rows" in shown


@pytest.mark.parametrize(("ending", "status"), [(KeyboardInterrupt(), 130), (console.Terminated(143), 143)])
def test_results_are_shown_after_an_interrupt(
    ending: BaseException,
    status: int,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*arguments: object) -> None:
        raise ending

    monkeypatch.setattr(console, "watch", interrupted)
    write(tmp_path, "1.json", *ROWS)
    assert run(BIDS + DEAR) == status
    assert "dear: 2 rows" in capsys.readouterr().out


def test_a_source_that_fails_at_the_end_gives_status_1_and_other_results_are_shown(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "1.json", *ROWS)
    (tmp_path / "asks").mkdir()
    (tmp_path / "asks" / "1.parquet").write_bytes(b"PAR1 this is none PAR1")
    asks = BIDS.replace("bid", "ask").replace("json", "parquet")
    assert run(BIDS + DEAR + asks + DEAR.replace("bid", "ask").replace("dear", "asked"), "--for", "0s") == 1
    printed = capsys.readouterr()
    assert "ask could not be read" in printed.out
    assert "reading ask stopped" in printed.err
    assert "dear: 2 rows" in printed.out


def test_wrong_usage_gives_status_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (["run"], ["run", "x.esl", "--no-such-option"], ["no-such-command"]):
        monkeypatch.setattr(sys, "argv", ["slicemill", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2
        assert capsys.readouterr().err


def test_help_and_the_page_list_every_exit_status() -> None:
    page = (Path(__file__).parents[1] / "docs" / "runtime.md").read_text()
    for status in (0, 1, 2, console.QUERY_FAILED, console.INTERRUPTED, console.TERMINATED):
        assert f" {status} " in cli.EXIT_STATUS
        assert f"| {status} |" in page


def interruptible() -> None:
    """Restore interrupts, which a process started in the background inherits as ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.slow_cpu
def test_on_spark_rows_are_printed_until_an_interrupt(tmp_path: Path) -> None:
    """In a separate process, the first line is printed while it runs, and ctrl-c ends it in order."""
    write(tmp_path, "1.json", (1, 20.0, 1))
    (tmp_path / "script.esl").write_text(BIDS + DEAR)
    command = [sys.executable, "-c", "from slicemill.cli import main; main()", "run", "script.esl", "--json"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            for number in (1, 2):
                line = json.loads(process.stdout.readline())
                assert line == {
                    "query": "dear",
                    "_ts": f"2026-01-01T00:00:0{number}Z",
                    "item": number,
                    "price": 20.0,
                }
                assert process.poll() is None
                write(tmp_path, f"{number + 1}.json", (number + 1, 20.0, number + 1), (9, 1.0, number + 1))
            process.send_signal(signal.SIGINT)
            rest, told = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == console.INTERRUPTED
    assert [json.loads(line)["item"] for line in rest.splitlines()] == [3]
    assert "bid: read 5 rows, of which 2 no query needed" in told
    assert "Traceback" not in told
