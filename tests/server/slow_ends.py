"""Shutdown of a real server: by SIGTERM at any time, and after the death of Spark's Java process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

SCRIPT = """
CREATE STREAM bid (item int, price int, ts timestamp) ORDER BY ts USING csv OPTIONS (path '{folder}');
CREATE QUERY total AS SELECT item, count(*) OVER (PARTITION BY item RANGE UNBOUNDED PRECEDING) AS n FROM bid;
"""
# On a busy machine a start takes 15 to 40 s.
_PATIENCE_S, _SECONDS = 120, 30


@contextmanager
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run `slicemill serve` in its own process."""
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    script = tmp_path / "script.esl"
    script.write_text(SCRIPT.format(folder=folder))
    command = [sys.executable, "-c", "from slicemill.cli import main; main()", "serve", str(script)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [*command, "--home", str(tmp_path / "home"), "--port", "0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
    ) as process:
        try:
            yield process
        finally:
            children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            for each in (process, *children):
                each.kill()


def _url(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if " at http://" in line:
            return line[line.index("http://") :].split(",")[0].split()[0]
    raise AssertionError("".join(seen))


def _ask(url: str, sql: str) -> None:
    with contextlib.suppress(httpx.HTTPError):
        httpx.post(f"{url}/v1/statements", json={"text": sql}, timeout=_PATIENCE_S)


def _java_of(process: subprocess.Popen[str]) -> psutil.Process:
    (java,) = [p for p in psutil.Process(process.pid).children() if "java" in p.name()]
    return java


def _all_gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, _SECONDS)[1]


def test_a_server_exits_with_an_error_status_when_java_dies_and_can_be_restarted(tmp_path: Path) -> None:
    rows = "".join(f"1,2,2026-01-01 00:00:{n:02d}\n" for n in range(50))
    for restart in range(2):
        with server(tmp_path) as process:
            url = _url(process)
            (tmp_path / "in" / f"{restart}.csv").write_text(rows.replace(" 00:", f" 0{restart}:"))
            with httpx.Client(base_url=url, timeout=_PATIENCE_S) as client:
                assert client.get("/health").json()["ready"]
                until, found = time.monotonic() + _PATIENCE_S, []
                while len(found) < 50 * (restart + 1) and time.monotonic() < until:
                    found = client.get("/v1/queries/total/results").json()["rows"]
                assert [row["n"] for row in found] == list(range(1, 50 * (restart + 1) + 1))
                processes = psutil.Process(process.pid).children(recursive=True)
                _java_of(process).kill()
                statuses = set()
                while process.poll() is None and time.monotonic() < until:
                    try:
                        statuses.add(client.get("/health").status_code)
                        text = f"CREATE QUERY x{time.monotonic_ns()} AS SELECT * FROM bid"
                        taken = client.post("/v1/statements", json={"text": text})
                        statuses.add(taken.status_code)
                    except httpx.HTTPError:
                        break
                assert process.wait(_SECONDS) == 1
            assert statuses <= {200, 503}
            assert process.stderr is not None
            assert "Spark has stopped" in process.stderr.read()
            assert _all_gone(processes)


def test_sigterm_stops_a_running_server(tmp_path: Path) -> None:
    sql = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3"
    with server(tmp_path) as process:
        url = _url(process)
        clients = [threading.Thread(target=_ask, args=(url, sql)) for _ in range(8)]
        for thread in clients:
            thread.start()
        with httpx.Client(base_url=url, timeout=_PATIENCE_S) as client:
            assert client.get("/health").json()["ready"]
        processes = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(_SECONDS) == 0
        for thread in clients:
            thread.join(_SECONDS)
        assert _all_gone(processes)


@pytest.mark.parametrize("after_s", [1, 3, 6])
def test_sigterm_stops_a_starting_server(tmp_path: Path, after_s: float) -> None:
    with server(tmp_path) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(after_s)
        processes = psutil.Process(process.pid).children(recursive=True)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        # Before the server installs its handler, the signal itself ends the process.
        assert process.wait(_SECONDS) in (0, -signal.SIGTERM)
        assert time.monotonic() - began < _SECONDS
        assert _all_gone(processes)
