"""Order, lateness and results are equal for every source and every border of batches.

The same recorded tuples are fed by a program, read from files and received from sockets; batches end
anywhere, tasks run, and mills stop, crash and restart in between. The reference engine computes the expected
results, and a few lines below the late tuples by the rule of the docs.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as parquet
from hypothesis import example, given, settings
from hypothesis import strategies as st

from connectors.sender import Sender, eventually
from slicemill.api.mill import Mill
from slicemill.binder import bind
from slicemill.types import Row
from slicemill_oracle.runner import run_script
from support.engine import Clock, feed_rows, finish, inline_pool, turn

SECOND = 1_000_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN_US = int(BEGIN.timestamp()) * SECOND

STREAM = "CREATE STREAM {} (n int, ts timestamp) ORDER BY ts SLACK {} SECONDS {};"
QUERIES = """
CREATE STREAM d AS SELECT n, n % 3 AS k FROM s WHERE n % 4 <> 0;
CREATE VIEW v AS SELECT n FROM t [ROWS 3];
CREATE QUERY plain AS SELECT n FROM s;
CREATE QUERY late AS SELECT n FROM s_late;
CREATE QUERY both AS SELECT n FROM d UNION ALL SELECT n FROM t;
CREATE QUERY places AS SELECT n, sum(n) OVER (ROWS 2 PRECEDING) AS x FROM d;
CREATE QUERY keyed AS SELECT n, count(*) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS c FROM d;
CREATE QUERY counts AS SELECT count(*) AS c, sum(n) AS x FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS];
CREATE QUERY joined AS
  SELECT d.n AS n, t.n AS m FROM d [RANGE 8 SECONDS], t [RANGE 6 SECONDS] WHERE d.k = t.n % 3;
CREATE QUERY met AS SELECT s.n AS n, v.n AS m FROM s, v;
"""


def moment(second: int) -> datetime:
    return BEGIN + timedelta(seconds=second)


def by_the_rule(seconds: Sequence[int], slack: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the tuples in order of admission, and of the late tuples."""
    admitted: list[tuple[int, int]] = []
    late: list[int] = []
    for number, second in enumerate(seconds):
        if any(second < earlier - slack for earlier, _ in admitted):
            late.append(number)
        else:
            admitted.append((second, number))
    return [number for _, number in sorted(admitted)], late


def by_the_reference(recorded: dict[str, list[int]], slack: int, folder: Path) -> dict[str, list[Row]]:
    for name, seconds in recorded.items():
        write_csv(folder / f"{name}.csv", 0, seconds)
    sources = {name: f"USING csv OPTIONS (path '{name}.csv')" for name in recorded}
    catalog = bind(script(slack, sources)).catalog
    found = run_script(catalog, folder)
    return {query.name: [timed.row for timed in query.rows] for query in found.queries}


def script(slack: int, sources: dict[str, str]) -> str:
    return "".join(STREAM.format(name, slack, source) for name, source in sources.items()) + QUERIES


# -- Sources ----------------------------------------------------------------------------------------------

Send = Callable[[Mill, int, Sequence[int]], None]
OpenPath = Callable[[str, Path], AbstractContextManager[tuple[str, Send]]]


def write_csv(path: Path, first: int, seconds: Sequence[int]) -> None:
    lines = (f"{number},{moment(second).isoformat()}\n" for number, second in enumerate(seconds, first))
    path.write_text("".join(lines))


def write_json(path: Path, first: int, seconds: Sequence[int]) -> None:
    rows = ({"n": n, "ts": moment(second).isoformat()} for n, second in enumerate(seconds, first))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_parquet(path: Path, first: int, seconds: Sequence[int]) -> None:
    numbers = pa.array(range(first, first + len(seconds)), pa.int32())
    times = pa.array([moment(second) for second in seconds], pa.timestamp("us", tz="UTC"))
    parquet.write_table(pa.table({"n": numbers, "ts": times}), path, row_group_size=2)


@contextmanager
def fed(name: str, folder: Path) -> Iterator[tuple[str, Send]]:
    def send(mill: Mill, first: int, seconds: Sequence[int]) -> None:
        times = (BEGIN_US + second * SECOND for second in seconds)
        feed_rows(mill, name, [(number, ts) for number, ts in enumerate(times, first)])

    yield "", send


@contextmanager
def files(form: str, name: str, folder: Path, options: str = "") -> Iterator[tuple[str, Send]]:
    write = {"csv": write_csv, "json": write_json, "parquet": write_parquet}[form]
    (folder / name).mkdir()

    def send(mill: Mill, first: int, seconds: Sequence[int]) -> None:
        made = folder / f"{first}.{form}"
        write(made, first, seconds)
        os.utime(made, (1_700_000_000 + first,) * 2)
        made.rename(folder / name / made.name)

    yield f"USING {form} OPTIONS (path '{folder / name}'{options})", send


@contextmanager
def sent(name: str, folder: Path) -> Iterator[tuple[str, Send]]:
    """Send lines over a socket; disconnect when the engine stops, and continue with the next engine."""
    with closing(Sender()) as sender:
        known: list[Mill] = []

        def send(mill: Mill, first: int, seconds: Sequence[int]) -> None:
            if mill not in known:
                sender.hang_up()
                known.append(mill)
            lines = (f"{n},{moment(second).isoformat()}\n" for n, second in enumerate(seconds, first))
            sender.send("".join(lines).encode())
            eventually(lambda: arrived(mill, name) >= first + len(seconds))

        yield f"SOURCE 'tcp://127.0.0.1:{sender.port}'", send


def arrived(mill: Mill, name: str) -> int:
    turn(mill)
    mill._clock.now += SECOND  # type: ignore[attr-defined]
    return int(mill.streams[name].fields.get("next_arrival", 0))


PATHS = {
    "fed": fed,
    "csv": partial(files, "csv"),
    "json": partial(files, "json"),
    "parquet": partial(files, "parquet"),
}


def run(
    recorded: dict[str, list[int]],
    slack: int,
    paths: dict[str, OpenPath],
    choose: Random,
    folder: Path,
    subtasks: int,
) -> dict[str, list[Row]]:
    """Return the rows of all queries; `choose` draws the borders of batches and the events between them."""
    clock = Clock(BEGIN_US)
    pool = inline_pool(2)
    with ExitStack() as stack:
        opened = {name: stack.enter_context(path(name, folder)) for name, path in paths.items()}
        text = script(slack, {name: source for name, (source, _) in opened.items()})

        def started() -> Mill:
            mill = Mill(home=folder / "home", folder=folder, pool=pool, clock=clock, subtasks=subtasks)
            mill.execute(text)
            mill.open()
            return mill

        mill = started()
        try:
            left = {name: (0, seconds) for name, seconds in recorded.items()}
            while any(seconds for _, seconds in left.values()):
                name = choose.choice([name for name, (_, seconds) in left.items() if seconds])
                first, seconds = left[name]
                count = choose.randint(1, len(seconds))
                clock.now += choose.randint(0, 3) * SECOND
                opened[name][1](mill, first, seconds[:count])
                left[name] = first + count, seconds[count:]
                if choose.random() < 0.6:
                    turn(mill)
                if choose.random() < 0.3:
                    mill.close(checkpoint=choose.random() < 0.5)
                    mill = started()
            clock.now += SECOND
            turn(mill)
            finish(mill)
            assert {name: query.error for name, query in mill.queries.items() if query.error} == {}
            return {name: [timed.row for timed in query.rows()] for name, query in mill.queries.items()}
        finally:
            mill.close()


def check(paths: dict[str, OpenPath], s: list[int], t: list[int], slack: int, seed: int) -> None:
    recorded = {"s": [2 * second for second in s], "t": [2 * second + 1 for second in t]}
    with tempfile.TemporaryDirectory() as folder:
        expected = by_the_reference(recorded, slack, Path(folder))
        choose = Random(seed)
        found = run(recorded, slack, paths, choose, Path(folder), choose.choice([1, 2, 3]))
    admitted, late = by_the_rule(recorded["s"], slack)
    assert found["plain"] == [(number,) for number in admitted]
    assert found["late"] == [(number,) for number in late]
    assert found == expected


# timestamps in seconds, in order of arrival
SECONDS = st.lists(st.integers(0, 12), min_size=1, max_size=14)
SLACK = st.integers(0, 6)


@settings(max_examples=30, deadline=None)
@given(st.tuples(*[st.sampled_from(list(PATHS))] * 2), SECONDS, SECONDS, SLACK, st.integers(0, 2**32))
def test_every_source_and_every_batch_border_give_the_rows_of_the_reference_engine(
    paths: tuple[str, str], s: list[int], t: list[int], slack: int, seed: int
) -> None:
    check({"s": PATHS[paths[0]], "t": PATHS[paths[1]]}, s, t, slack, seed)


def test_lists_survive_a_round_trip_through_json_and_parquet_files(tmp_path: Path) -> None:
    """Convert JSON to Parquet and Parquet to JSON; the lists stay equal."""
    lists: list[list[str | None] | None] = [["a", None], [], None, ["b", "a", "c"]]
    with (tmp_path / "in.json").open("w") as out:
        for n, tags in enumerate(lists):
            out.write(json.dumps({"n": n, "tags": tags, "ts": moment(n).isoformat()}) + "\n")
    declared = "CREATE STREAM s (n int, tags varchar[], ts timestamp) ORDER BY ts SOURCE '{}';"
    copied = "CREATE QUERY q WITH (sink = '{}') AS SELECT n, tags, ts FROM s;"
    files = [("in.json", f"parquet:{tmp_path}/one"), (f"{tmp_path}/one/*.parquet", f"json:{tmp_path}/two")]
    for number, (source, sink) in enumerate(files):
        pool, clock = inline_pool(1), Clock(BEGIN_US)
        with closing(Mill(home=tmp_path / f"home{number}", folder=tmp_path, pool=pool, clock=clock)) as mill:
            mill.execute(declared.format(source) + copied.format(sink))
            mill.open()
            turn(mill)
            finish(mill)
            turn(mill)
            found = [timed.row[:2] for timed in mill.queries["q"].rows()]
        assert found == [(n, None if tags is None else tuple(tags)) for n, tags in enumerate(lists)]
    lines = [line for path in (tmp_path / "two").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert [json.loads(line)["tags"] for line in lines] == lists


@settings(max_examples=3, deadline=None)
@given(SECONDS, SECONDS, SLACK, st.integers(0, 2**32))
# Mills start and stop before the first line.
@example([11, 0], [10, 11, 10, 4, 4, 1, 5, 8, 0, 12, 6, 5, 9, 10], 1, 180909)
def test_socket_sources_give_the_rows_of_the_reference_engine(
    s: list[int], t: list[int], slack: int, seed: int
) -> None:
    check({"s": sent, "t": fed}, s, t, slack, seed)
