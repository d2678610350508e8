"""ALTER QUERY … SET: a query is run and delivered in another way, and computes what it did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.lifecycle.catalog_journal import in_force
from slicemill.sql.errors import EslError
from slicemill.storage.changes import Change
from slicemill.storage.home import Home
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
DECLARED = "CREATE STREAM s (at timestamp, k int, v int) ORDER BY at;"
SUMS = "SELECT k, sum(v) AS n FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k"
ROWS = [(second * SECOND, second % 3, second) for second in range(1, 31)]


def opened(folder: Path, esl: str) -> Mill:
    mill = fed_mill(folder, Clock(), inline_pool())
    mill.execute(esl)
    mill.open()
    return mill


def restored(folder: Path) -> Mill:
    mill = fed_mill(folder, Clock(), inline_pool())
    assert mill.statements.restore() == []
    mill.open()
    return mill


def feed(mill: Mill, first: int, last: int) -> None:
    for row in ROWS[first:last]:
        feed_rows(mill, "s", [row])
        mill.dispatcher.run_all()
    mill.sinks.deliver_new()


def text_of(mill: Mill, name: str = "q") -> str:
    return str(in_force(mill.home.statements)["query", name]["text"])


def rows(mill: Mill, name: str = "q") -> list[tuple[object, ...]]:
    return [(timed.ts, *timed.row) for timed in mill.queries[name].timed_rows()]


def delivered(path: Path) -> list[tuple[object, ...]]:
    """The rows that a sink of JSON lines has, as (k, v)."""
    read = [
        json.loads(line)
        for file in sorted(path.rglob("*"))
        if file.suffix == ".jsonl"
        for line in file.read_text().splitlines()
    ]
    return [(row["k"], row["v"]) for row in read]


@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash"])
def test_an_altered_query_goes_on_with_its_state_and_its_version(tmp_path: Path, reopened: str) -> None:
    mill = opened(tmp_path / "home", f"{DECLARED}CREATE QUERY q WITH (slo = 'p99 < 2 s') AS {SUMS};")
    task = mill.dispatcher.running.writers["q"].id
    feed(mill, 0, 13)
    mill.execute("ALTER QUERY q SET (weight = 2.5, slo = 'mean < 40 ms', retain = '2 days')")
    if reopened:
        mill.close(checkpoint=reopened == "checkpoint")
        mill = restored(tmp_path / "home")
    definition = mill.catalog.queries["q"]
    assert (definition.options.weight, str(definition.options.slo)) == (2.5, "mean < 40 milliseconds")
    assert definition.retain_us == 2 * 86_400 * SECOND
    goal = mill.dispatcher.running.goals["q"]
    assert (goal.weight, goal.within_s) == (2.5, 0.04)
    assert mill.dispatcher.running.writers["q"].id == task
    assert text_of(mill).split(" AS")[0] == (
        "CREATE QUERY q RETAIN 2 DAYS WITH (slo = 'mean < 40 milliseconds', weight = 2.5)"
    )
    feed(mill, 13, 30)
    finish(mill)
    always = opened(tmp_path / "always", f"{DECLARED}CREATE QUERY q AS {SUMS};")
    feed(always, 0, 30)
    finish(always)
    assert rows(mill) == rows(always) != []
    assert mill.queries["q"].version == 1
    mill.close()
    always.close()


def test_null_takes_an_option_away(tmp_path: Path) -> None:
    options = "weight = 3, slo = 'p50 < 1 s', lag = '2 s'"
    mill = opened(tmp_path, f"{DECLARED}CREATE QUERY q RETAIN 1 DAY WITH ({options}) AS {SUMS};")
    mill.execute("ALTER QUERY q SET (slo = NULL, retain = NULL)")
    assert text_of(mill).split(" AS")[0] == "CREATE QUERY q WITH (weight = 3, lag = '2 s')"
    assert mill.catalog.queries["q"].retain_us is None
    mill.close()


def test_what_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    mill = opened(tmp_path, f"{DECLARED}CREATE QUERY q WITH (weight = 2) AS {SUMS};")
    known = len(mill.home.statements)
    mill.execute("ALTER QUERY q SET (weight = 2, sink = NULL)")
    assert len(mill.home.statements) == known
    mill.close()


def test_a_query_without_a_text_of_its_own_can_be_altered(tmp_path: Path) -> None:
    mill = opened(tmp_path, f"{DECLARED}{SUMS};")
    mill.execute("ALTER QUERY query_1 SET (weight = 1e-7)")
    mill.close()
    mill = restored(tmp_path)
    assert mill.catalog.queries["query_1"].options.weight == 1e-7
    mill.close()


def test_a_script_that_alters_what_it_creates_says_nothing_new_at_the_next_start(tmp_path: Path) -> None:
    script = f"{DECLARED}CREATE QUERY q AS {SUMS}; ALTER QUERY q SET (weight = 2, retain = '1 day')"
    mill = opened(tmp_path, script)
    feed(mill, 0, 13)
    mill.close()
    mill = opened(tmp_path, script)
    known = len(mill.home.statements)
    assert mill.catalog.queries["q"].options.weight == 2
    mill.close()
    mill = opened(tmp_path, script)
    assert len(mill.home.statements) == known
    assert mill.catalog.queries["q"].options.weight == 2
    assert "WITH (weight = 2)" in text_of(mill)
    feed(mill, 13, 30)
    assert mill.queries["q"].version == 1
    mill.close()


def test_other_options_in_a_script_stand_in_the_home(tmp_path: Path) -> None:
    opened(tmp_path, f"{DECLARED}CREATE QUERY q AS {SUMS};").close()
    opened(tmp_path, f"{DECLARED}CREATE QUERY q WITH (weight = 4) AS {SUMS};").close()
    mill = restored(tmp_path)
    assert mill.catalog.queries["q"].options.weight == 4
    mill.close()


@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash"])
def test_every_result_goes_to_the_sink_of_its_time(tmp_path: Path, reopened: str) -> None:
    plain = "SELECT k, v FROM s"
    first, second = tmp_path / "first", tmp_path / "second"
    mill = opened(tmp_path / "home", f"{DECLARED}CREATE QUERY q WITH (sink = 'jsonl:{first}') AS {plain};")
    feed(mill, 0, 5)
    feed_rows(mill, "s", ROWS[5:8])
    mill.dispatcher.run_all()  # the sink has yet to get these
    mill.execute(f"ALTER QUERY q SET (sink = 'jsonl:{second}')")
    if reopened:
        mill.close(checkpoint=reopened == "checkpoint")
        mill = restored(tmp_path / "home")
    feed(mill, 8, 12)
    mill.execute("ALTER QUERY q SET (sink = NULL)")
    assert "q" not in mill.sinks
    finish(mill)
    taken = [[(k, v) for _, k, v in ROWS[low:high]] for low, high in ((0, 8), (8, 12))]
    assert [delivered(first), delivered(second)] == taken
    mill.close()


def test_a_sink_that_comes_later_gets_what_has_the_columns_of_now(tmp_path: Path) -> None:
    mill = opened(tmp_path / "home", f"{DECLARED}CREATE QUERY q AS SELECT v FROM s;")
    feed(mill, 0, 4)
    mill.execute("CREATE OR REPLACE QUERY q AS SELECT k, v FROM s")
    feed(mill, 4, 6)
    mill.execute(f"ALTER QUERY q SET (sink = 'jsonl:{tmp_path / 'out'}')")
    feed(mill, 6, 9)
    mill.execute("ALTER QUERY q SET (sink = NULL)")
    assert delivered(tmp_path / "out") == [(k, v) for _, k, v in ROWS[4:9]]
    mill.close()


def test_a_sink_that_does_not_take_the_rest_is_not_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill = opened(
        tmp_path / "home",
        f"{DECLARED}CREATE QUERY q WITH (sink = 'jsonl:{tmp_path / 'first'}') AS SELECT k, v FROM s;",
    )
    feed(mill, 0, 3)
    before = text_of(mill)

    def down(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(type(mill.sinks["q"]), "deliver", down)
        feed(mill, 3, 5)
        with pytest.raises(SlicemillError, match="2 rows that it has yet to get"):
            mill.execute(f"ALTER QUERY q SET (sink = 'jsonl:{tmp_path / 'second'}')")
    assert text_of(mill) == before
    assert mill.catalog.queries["q"].options.sink == f"jsonl:{tmp_path / 'first'}"
    mill.close()


def test_a_kill_leaves_the_old_options_or_the_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every record that the statement commits: what is on the disk then is one of the two."""
    mill = opened(tmp_path / "home", f"{DECLARED}CREATE QUERY q AS SELECT k, v FROM s;")
    feed(mill, 0, 5)
    copies: list[Path] = []
    commit = Home.commit

    def copying(home: Home, change: Change) -> object:
        for step in ("before", "after"):
            if step == "after":
                done = commit(home, change)
            copies.append(tmp_path / f"{len(copies)}")
            shutil.copytree(tmp_path / "home", copies[-1])
        return done

    with monkeypatch.context() as patched:
        patched.setattr(Home, "commit", copying)
        mill.execute(f"ALTER QUERY q SET (weight = 2, sink = 'jsonl:{tmp_path / 'out'}')")
    mill.close()
    found = []
    for copy in copies:
        again = fed_mill(copy, Clock(), inline_pool())
        again.statements.restore()
        options = again.catalog.queries["q"].options
        found.append((options.weight, options.sink is not None))
        again.close()
    assert set(found) == {(1.0, False), (2.0, True)}
    assert found == sorted(found)


MISTAKES = {
    "ALTER QUERY q SET (wait = 2)": (20, "a query has no option wait", "did you mean weight"),
    "ALTER QUERY q SET (weight = 0)": (20, "a weight is a number above 0", ""),
    "ALTER QUERY q SET (weight = 2, weight = 3)": (32, "weight is given twice", ""),
    "ALTER QUERY q SET (slo = 'soon')": (20, "'soon' is no service level", "p99"),
    "ALTER QUERY q SET (retain = 'long')": (29, "'long' is not a duration", "retain = '7 days'"),
    "ALTER QUERY q SET (retain = '0 days')": (29, "'0 days' is not a duration", ""),
    "ALTER QUERY q SET (lag = '2 s')": (20, "lag is a part of what q computes", "CREATE OR REPLACE QUERY q"),
    "ALTER QUERY loaded SET (weight = 2)": (25, "the weight of loaded is a part", "CREATE OR REPLACE"),
    "ALTER QUERY qq SET (weight = 2)": (13, "there is no query qq", "did you mean q"),
    "ALTER QUERY s SET (weight = 2)": (13, "there is no query s", "it is a stream"),
    "ALTER QUERY asked SET (weight = 2)": (13, "asked reads tables and views only", ""),
    "ALTER QUERY counts SET (sink = NULL)": (25, "results of counts change", "DROP QUERY counts"),
    "ALTER STREAM s ADD COLUMN K int": (20, "s has a column k INT already", "give the new one another name"),
    "ALTER STREAM s ADD COLUMN x int DEFAULT 'a'": (41, "'a' is no INT", "a constant of type INT"),
    "ALTER STREAM s ADD COLUMN x int DEFAULT k": (41, "a default must be a constant", "single quotes"),
    "ALTER STREAM q ADD COLUMN x int": (14, "there is no stream q", "it is a query"),
    "ALTER QUERY q (weight = 2)": (15, "", "ALTER QUERY name SET"),
}


@pytest.mark.parametrize("statement", MISTAKES)
def test_a_mistake_is_told_with_its_place_and_changes_nothing(tmp_path: Path, statement: str) -> None:
    column, message, hint = MISTAKES[statement]
    mill = opened(
        tmp_path,
        f"""{DECLARED} CREATE TABLE t (a int);
        CREATE QUERY q AS {SUMS};
        CREATE QUERY loaded WITH (lag = '2 s') AS {SUMS};
        CREATE QUERY asked AS SELECT a FROM t;
        CREATE QUERY counts WITH (sink = 'jsonl:{tmp_path / "out"}?changelog=true')
        AS SELECT k, count(*) AS n FROM s GROUP BY k EMIT CHANGES;""",
    )
    known = len(mill.home.statements)
    with pytest.raises(EslError) as caught:
        mill.execute(statement)
    (found,) = caught.value.diagnostics
    assert (found.span.start + 1, message in found.message, hint in found.hint) == (
        column,
        True,
        True,
    ), found
    assert len(mill.home.statements) == known
    mill.close()
