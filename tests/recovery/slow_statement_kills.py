"""500 kills during statements: what was acknowledged is there, anything else wholly or not at all.

`make test-slow` runs it. Most kills are of a process whose workers are in it, so that they are quick; some
are of a real server, which is started again after each.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from recovery.dying import AFTER, BEFORE, TORN, Death
from recovery.mixed_statements import BASE
from recovery.test_statement_kills import CHANGES, DECLARED, check_all_or_nothing, home, steps_of

__all__ = ["home"]  # the fixture

KILLS, KILLS_OF_A_SERVER = 500, 10
_SEED = 33
_STARTS_S = 300.0


def test_acknowledged_statements_are_there_after_500_kills(tmp_path: Path) -> None:
    program = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "recovery.statement_kills",
        str(KILLS),
        str(_SEED),
        str(tmp_path),
    ]
    done = subprocess.run(program, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    lines = done.stdout.splitlines()
    found = Counter(line.rpartition(": ")[2] if ": " in line else "between statements" for line in lines)
    print(f"{len(lines)} kills: {dict(found)}")
    assert len(lines) == KILLS
    # Statements were interrupted before and after their record was written.
    assert found["absent"] and found["present"]


@pytest.mark.parametrize("kind", CHANGES)
def test_a_statement_is_whole_or_absent_whatever_file_operation_is_interrupted(
    kind: str, home: Path, tmp_path: Path
) -> None:
    change, counted = CHANGES[kind], Death()
    steps_of(home, tmp_path / "counted", change, counted)
    for step, when in itertools.product(range(counted.steps), (BEFORE, TORN, AFTER)):
        left = steps_of(home, tmp_path / f"{step}-{when}", change, Death(step, when))
        check_all_or_nothing(left, change, DECLARED, done=False)


class _Server:
    """`slicemill serve` over a home, in a process group of its own."""

    def __init__(self, home: Path, log: Path) -> None:
        self._killer: threading.Timer | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with log.open("ab") as out:
            command = [
                sys.executable,
                "-c",
                "from slicemill.cli import main; main()",
                "serve",
                "--home",
                str(home),
                "--port",
                str(port),
            ]
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        ends = time.monotonic() + _STARTS_S
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < ends, log.read_text()[-4_000:]
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return self.client.get("/v1/catalog").status_code == 200
        except httpx.TransportError:
            return False

    def run(self, text: str) -> None:
        answer = self.client.post("/v1/statements", json={"text": text})
        assert answer.status_code == 200, answer.text

    def names(self) -> set[str]:
        return {entry["name"] for entry in self.client.get("/v1/catalog").json()}

    def kill_in(self, seconds: float) -> None:
        """Kill the server and its JVM after a while."""
        self._killer = threading.Timer(seconds, os.killpg, (self._process.pid, signal.SIGKILL))
        self._killer.start()

    def wait_dead(self) -> None:
        assert self._killer is not None
        self._killer.join()
        self._process.wait()

    def end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.client.close()


def test_a_server_that_is_killed_has_every_acknowledged_statement(tmp_path: Path) -> None:
    dice, declared, tables, number = random.Random(_SEED), set[str](), set[int](), 0
    server = _Server(tmp_path / "home", tmp_path / "log")
    try:
        server.run(BASE)
        declared |= server.names()
        for _ in range(KILLS_OF_A_SERVER):
            server.kill_in(dice.random() * 2)
            unsure: tuple[set[str], set[str], set[int]] = set(), set(), set()
            try:
                while True:
                    number += 1
                    present = sorted(name for name in declared if name.startswith("q"))
                    if len(present) > 5:
                        unsure = set(), {present[0]}, set()
                        server.run(f"DROP QUERY {present[0]}")
                        declared.discard(present[0])
                    elif number % 3 == 0:
                        unsure = set(), set(), {number}
                        server.run(f"INSERT INTO t VALUES ({number}, 0)")
                        tables.add(number)
                    else:
                        unsure = {f"q{number}"}, set(), set()
                        server.run(f"CREATE QUERY q{number} AS SELECT k, v + {number} AS n FROM s")
                        declared.add(f"q{number}")
            except httpx.TransportError:
                server.wait_dead()
            server.end()
            server = _Server(tmp_path / "home", tmp_path / "log")
            created, dropped, inserted = unsure
            names = server.names()
            assert declared - dropped <= names <= declared | created, (declared, names, unsure)
            asked = server.client.post("/v1/statements", json={"text": "SELECT k FROM t"}).json()
            keys = {row["k"] for row in asked["answers"][0]["rows"]}
            assert tables <= keys <= tables | inserted
            declared, tables = names, keys
            for name in created - names:  # the name is free
                server.run(f"CREATE QUERY {name} AS SELECT k FROM s")
                declared.add(name)
            for name in created | {name for name in sorted(declared) if name.startswith("q")}:
                if name in declared:
                    assert server.client.get(f"/v1/queries/{name}/results").status_code == 200
            for name in created & declared:
                server.run(f"DROP QUERY {name}")
                declared.discard(name)
    finally:
        server.end()
