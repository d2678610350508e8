"""Start and shutdown of a server: missing files, errors in the script, log lines, systemd, and signals."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from server.conftest import bid
from slicemill.server.logs import JsonLogLines, LogFormat, TextLogLines, logging_to_stderr, note_event
from slicemill.server.serve import PendingStatements, _notify_systemd
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.sql.errors import EslError, SourceText

SCRIPT = """
CREATE TABLE item (id int, name varchar) USING csv OPTIONS (path '{file}', header true);
CREATE QUERY named AS SELECT B.price, I.name FROM bid AS B, item AS I WHERE B.item = I.id;
CREATE QUERY cheap AS SELECT price FROM bid WHERE price < 5;
"""


def test_statements_with_missing_files_wait_while_other_statements_run(
    service: MillService, tmp_path: Path
) -> None:
    file = tmp_path / "item.csv"
    waiting = PendingStatements(service)
    waiting.declare(SourceText(SCRIPT.format(file=file)))
    assert sorted(service.mill.queries) == ["cheap", "dear"]
    assert [problem.split(" failed and is retried: ")[0] for problem in service.problems()] == [
        "statement CREATE TABLE item …",
        "statement CREATE QUERY named …",
    ]
    assert waiting.retry_pending() == []
    file.write_text("id,name\n1,lamp\n")
    assert waiting.retry_pending() == ["CREATE TABLE item …", "CREATE QUERY named …"]
    bid(service, (1, 20, 1))
    (answer,) = UserSession(service).execute("SELECT price, name FROM named")
    assert answer.table is not None
    assert answer.table.to_pylist() == [{"price": 20, "name": "lamp"}]
    assert service.problems() == []


def test_an_error_in_a_script_is_reported_and_no_statement_of_it_runs(service: MillService) -> None:
    with pytest.raises(EslError, match="did you mean item"):
        PendingStatements(service).declare(
            SourceText("CREATE QUERY a AS SELECT price FROM bid; CREATE QUERY b AS SELECT itm FROM bid")
        )
    assert list(service.mill.queries) == ["dear"]


def test_each_event_is_one_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to_stderr(LogFormat.JSON):
        note_event("start", "it serves\nqueries", url="http://x")
        logging.getLogger("elsewhere").warning("beware")
        logging.getLogger("elsewhere").info("not this")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["message"], line.get("url")) for line in lines] == [
        ("start", "it serves\nqueries", "http://x"),
        ("message", "beware", None),
    ]
    with logging_to_stderr(LogFormat.TEXT):
        note_event("stop", "ended")
    assert capsys.readouterr().err.endswith("Z stop: ended\n")


def test_a_traceback_is_part_of_its_log_line() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    for formatter in (JsonLogLines(), TextLogLines()):
        handler.setFormatter(formatter)
        try:
            raise ValueError("broken")
        except ValueError:
            record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), sys.exc_info())
        handler.emit(record)
    assert "ValueError: broken" in json.loads(out.getvalue().splitlines()[0])["trace"]


def test_systemd_is_notified_when_the_server_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        _notify_systemd("READY=1")
        assert listening.recv(100) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    _notify_systemd("READY=1")


# A server with workers in its own process. Its rows come from a growing file.
SERVER = """
import sys
from concurrent.futures import Future
from slicemill.server import serve
from slicemill.server.network import ServerSockets
from slicemill.sql.errors import SourceText
from slicemill.testing import inline_pool, open_mill
from pathlib import Path

home, folder = map(Path, sys.argv[1:])
serve.Mill = lambda spark, home: open_mill(home=home, pool=inline_pool(1), poll_ms=5)
script = f'''
CREATE STREAM bid (item int, price int, ts timestamp) ORDER BY ts USING csv OPTIONS (path '{folder}');
CREATE QUERY total AS SELECT item, count(*) OVER (PARTITION BY item RANGE UNBOUNDED PRECEDING) AS n FROM bid;
'''
options = serve.ServeOptions(home, SourceText(script), log_format=serve.LogFormat.JSON)
serve.run_server(ServerSockets(), serve.Access(home), options, Future())
"""


class ServerProcess:
    """Server in its own process, with the events that it logs."""

    def __init__(self, home: Path, folder: Path) -> None:
        root = Path(__file__).parents[2]
        paths = [str(root / part) for part in ("src", "client/src", "tests")]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(home), str(folder)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self.url = ""

    def started(self) -> None:
        self.url = self.event("start")["url"]

    def event(self, wanted: str) -> dict[str, str]:
        """Return the next event of this kind."""
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if line.startswith("{") and (entry := json.loads(line))["event"] == wanted:
                found: dict[str, str] = entry
                return found
        raise AssertionError("".join(seen))

    def rows_when(self, count: int) -> list[int]:
        """Return the results when their number has reached the given count."""
        found: list[int] = []
        with (
            httpx.Client(base_url=self.url, timeout=60) as client,
            client.stream("GET", "/v1/queries/total/live", params={"since": 0}) as response,
        ):
            for line in response.iter_lines():
                if line.startswith("data: ") and "rows" in line:
                    found += [row["n"] for row in json.loads(line[6:])["rows"]]
                    if len(found) >= count:
                        return found
        raise AssertionError(found)


@pytest.mark.slow_cpu
def test_a_server_that_is_stopped_by_a_signal_loses_and_repeats_no_row(tmp_path: Path) -> None:
    folder, home = tmp_path / "in", tmp_path / "home"
    folder.mkdir()

    def arrive(first: int, rows: int) -> None:
        lines = "".join(f"1,2,2026-01-01 00:{n // 60:02d}:{n % 60:02d}\n" for n in range(first, first + rows))
        (folder / f".{first}").write_text(lines)
        (folder / f".{first}").rename(folder / f"{first:06d}.csv")

    arrive(0, 100)
    for restart in range(2):
        server = ServerProcess(home, folder)
        try:
            server.started()
            count = 100 * (restart + 1)
            assert server.rows_when(count) == list(range(1, count + 1))
            server.process.send_signal(signal.SIGTERM)
            arrive(count, 100)  # These rows arrive during the shutdown.
            server.event("stop")
            assert server.process.wait(60) == 0
        finally:
            server.process.kill()
            assert server.process.stderr is not None
            server.process.stderr.close()
