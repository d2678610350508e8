"""Panes in two phases on Spark: entries lie beside chunks, and results are those of one phase."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from slicemill.engine.mill import Mill
from slicemill.plan.early_cost import Choice, PaneStatistics, choose

SCRIPT = """
CREATE STREAM bid (item int, price double, ts timestamp) ORDER BY ts USING json OPTIONS (path 'bids');
CREATE QUERY every AS SELECT sum(price) AS s, first(item) AS f, window_end() AS e FROM bid
  [RANGE 3 SECONDS SLIDE 1 SECOND];
CREATE QUERY dear AS SELECT count(*) AS n, window_end() AS e FROM bid [RANGE 2 SECONDS SLIDE 1 SECOND]
  WHERE price > 2;
CREATE QUERY by_item AS SELECT item, max(price) AS x, window_end() AS e FROM bid
  [RANGE 3 SECONDS SLIDE 1 SECOND] GROUP BY item;
"""
QUERIES = ("every", "dear", "by_item")
SECOND = 1_000_000


def always(known: PaneStatistics, keyed: bool, buckets: int, cores: int) -> Choice:
    return Choice(True, f"asked for: {choose(known, keyed, buckets, cores).why}")


def never(*_: object) -> Choice:
    return Choice(False, "not asked for")


def write(folder: Path, number: int, times: Sequence[int]) -> None:
    """A batch in two files, whose times overlap."""
    (folder / "bids").mkdir(exist_ok=True)
    for part in range(2):
        lines = [
            json.dumps({"item": ts % 5, "price": ts % 7 / 2, "ts": ts * SECOND // 10})
            for ts in times[part::2]
        ]
        (folder / "bids" / f"{number}-{part}.json").write_text("\n".join(lines))


def read(mill: Mill) -> None:
    """All that is there, without ending the streams."""
    mill.open()
    mill._reader.read_to_the_end(mill.intakes, mill._needs())
    mill.dispatcher.run_all()


def opened(spark: SparkSession, folder: Path, name: str) -> Mill:
    mill = Mill(spark, folder / name, folder=folder)
    mill.early_panes.choose = always if name == "two" else never
    mill.execute(SCRIPT)
    return mill


def panes(mill: Mill) -> list[tuple[int, int]]:
    """By chunk: the number of its epoch, and by how many recipes it has entries."""
    return [(e.number, len(chunk.panes)) for e in mill.home.logs["bid"].epochs() for chunk in e.chunks]


def test_two_phases_give_the_results_of_one_also_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    # The second batch has late tuples: its chunks are written anew, and rows are read.
    batches = [range(40), range(35, 75), range(75, 110)]
    found = {}
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        mill = opened(spark, folder, name)
        for number, times in enumerate(batches):
            write(folder, number, times)
            read(mill)
            if name == "two" and number == 1:
                mill.close()
                mill = opened(spark, folder, name)
        assert dict(panes(mill)) == ({0: 2, 1: 0, 2: 2} if name == "two" else {0: 0, 1: 0, 2: 0})
        if name == "two":
            counted = [unit.statistics.panes for unit in mill.dispatcher.units.values()]
            assert all(known.fragments > 1 for known in counted), "entries of several chunks were read"
            assert "asked for" in mill.queries["every"].explain()
        mill.drain()
        found[name] = {query: sorted(map(repr, mill.queries[query].rows())) for query in QUERIES}
        log = mill.home.logs["bid"]
        files = [log.folder / path for e in log.epochs() for chunk in e.chunks for path in chunk.files]
        assert all(path.exists() for path in files)
        mill.collect()
        assert not any(path.exists() for path in files)
        mill.close()
    assert found["two"] == found["one"]
    assert all(found["one"].values())


def test_a_new_query_changes_what_is_made(spark: SparkSession, tmp_path: Path) -> None:
    """Chunks that came before it have entries by another recipe: those of the queries that were there."""
    with opened(spark, tmp_path, "two") as mill:
        write(tmp_path, 0, range(40))
        read(mill)
        mill.execute(
            "CREATE QUERY least AS SELECT min(price) AS low, window_end() AS e FROM bid "
            "[RANGE 2 SECONDS SLIDE 1 SECOND];"
        )
        write(tmp_path, 1, range(40, 80))
        read(mill)
        recipes = [set(chunk.panes) for e in mill.home.logs["bid"].epochs() for chunk in e.chunks]
        assert recipes[0] != recipes[-1]
        mill.drain()
        lows = [(t.ts // SECOND, t.row[0]) for t in mill.queries["least"].rows()]
        everything = [t.ts // SECOND for t in mill.queries["every"].rows()]
    prices = {ts: ts % 7 / 2 for ts in range(40, 80)}
    assert lows == [
        (end, min(p for ts, p in prices.items() if (end - 2) * 10 <= ts < end * 10)) for end in range(5, 10)
    ]
    assert everything == list(range(1, 11))
