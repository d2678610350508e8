"""The catalog in the journal: every statement once, in order, over restarts and drops."""

from __future__ import annotations

from pathlib import Path

from slicemill.lifecycle.catalog_journal import in_force
from slicemill.storage.home_reader import HomeReader
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill

STREAM = "CREATE STREAM s (k int, ts timestamp) ORDER BY ts"
MEAN = "CREATE AGGREGATE mean2(x int) : int { INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (x); } }"
QUERY = "CREATE QUERY q AS SELECT k FROM s"


def test_a_home_knows_its_statements_without_the_script(tmp_path: Path) -> None:
    clock = Clock(7)
    for _ in range(2):  # a script that is run again says nothing new
        with fed_mill(tmp_path, clock, inline_pool()) as mill:
            mill.execute(f"{STREAM};\n{MEAN};\n{QUERY}; SET policy = 'hnr'")
        clock.now = 9
    entries = HomeReader(tmp_path).statements
    assert [(e["at"], e["kind"], e["name"], e["text"]) for e in entries] == [
        (7, "relation", "s", STREAM),
        (7, "aggregate", "mean2", MEAN),
        (7, "query", "q", QUERY),
        (7, "setting", "policy", "SET policy = 'hnr'"),
    ]
    assert all(isinstance(entry["by"], str) for entry in entries)


def test_what_is_dropped_is_not_in_force_and_may_come_again(tmp_path: Path) -> None:
    with fed_mill(tmp_path, Clock(), inline_pool()) as mill:
        mill.execute(f"{STREAM}; {MEAN}; {QUERY}")
        mill.execute("DROP QUERY q; DROP AGGREGATE mean2")
        assert {key: e["text"] for key, e in in_force(mill.home.statements).items()} == {
            ("relation", "s"): STREAM
        }
        mill.execute(QUERY)
        assert in_force(mill.home.statements)["query", "q"]["text"] == QUERY
