"""Limits of processor time in the driver; expensive constants are computed by workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.catalog.expressions import Call, Literal
from slicemill.errors import SlicemillError
from slicemill.functions.evaluate import compile_vector
from slicemill.runtime import driver_limit as computing_limit
from slicemill.runtime.driver_limit import CpuTimeLimit
from slicemill.testing import Clock, inline_pool
from slicemill.types import INT, VARCHAR, Schema
from support.engine import fed_mill, feed_rows

SLOW = "levenshtein(repeat('a', n * 100), repeat('b', n * 100))"
SCRIPT = f"""
CREATE TABLE sizes (n int);
INSERT INTO sizes VALUES (1000);
CREATE VIEW slow AS SELECT {SLOW} AS d FROM sizes;
CREATE QUERY asked AS SELECT d FROM slow;
"""


def _change(mill: Mill) -> object:
    return mill.statements.change_rows(f"UPDATE sizes SET n = {SLOW}")


def _insert(mill: Mill) -> object:
    return mill.statements.change_rows(f"INSERT INTO sizes SELECT {SLOW} FROM sizes")


def _view(mill: Mill) -> object:
    return mill.tables.rows("slow")


def _ask(mill: Mill) -> object:
    return mill.tables.rows("asked")


@pytest.mark.parametrize("compute", [_change, _insert, _view, _ask])
def test_what_takes_long_is_ended_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compute: Callable[[Mill], object]
) -> None:
    with fed_mill(tmp_path / "home", Clock(), inline_pool(1)) as mill:
        mill.execute(SCRIPT)
        monkeypatch.setattr(computing_limit, "COMPUTING_S", 0.3)
        began = time.thread_time()
        with pytest.raises(SlicemillError, match=r"took more than 0\.3 s of processor time and was ended"):
            compute(mill)
        assert time.thread_time() - began < 3
        assert list(mill.tables.rows("sizes")) == [(1000,)]
        assert mill.statements.change_rows("UPDATE sizes SET n = 1") == [1]
        assert compute(mill) is not None


def test_a_limit_counts_the_processor_time_of_its_own_thread() -> None:
    def compute() -> None:
        began = time.thread_time()
        while time.thread_time() - began < 0.2:
            pass

    other = threading.Thread(target=compute)
    with CpuTimeLimit("the test", 0.05):
        other.start()
        other.join()
    with CpuTimeLimit("the test", 1000.0):
        pass
    with pytest.raises(ZeroDivisionError), CpuTimeLimit("the test", 1000.0):
        _ = 1 // 0
    with pytest.raises(SlicemillError, match=r"test took more than 0\.05 s"), CpuTimeLimit("test", 0.05):
        while True:
            pass


def test_a_constant_that_may_take_long_is_not_computed_when_its_query_is_compiled(tmp_path: Path) -> None:
    def distance(length: int) -> Call:
        texts = tuple(
            Call("repeat", (Literal(letter, VARCHAR), Literal(length, INT)), VARCHAR) for letter in "ab"
        )
        return Call("levenshtein", texts, INT)

    began = time.process_time()
    compile_vector(distance(100_000), Schema(()))
    assert time.process_time() - began < 5
    with fed_mill(tmp_path / "home", Clock(), inline_pool(1)) as mill:
        mill.execute(
            "CREATE STREAM s (k int, ts timestamp micros) ORDER BY ts;"
            "CREATE QUERY q AS SELECT k + levenshtein(repeat('a', 30), repeat('b', 30)) AS d,"
            " levenshtein('x', 'yz') AS e FROM s WHERE levenshtein('kitten', 'sitting') = 3"
        )
        mill.open()
        feed_rows(mill, "s", [(1, 1), (2, 2)])
        mill.dispatcher.run_all()
        assert [tuple(timed.row) for timed in mill.queries["q"].timed_rows()] == [(31, 2), (32, 2)]
