"""Benchmark of many queries: the queries differ, and the reference engine confirms the results."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from slicemill.binder import bind
from slicemill_lab import bench
from slicemill_lab.bench.benchmark import NAMES
from slicemill_lab.bench.inputs.many import STREAMS, Batch, ExpectedOfMany, make_batches
from slicemill_lab.bench.inputs.query_sets import mixed_queries
from slicemill_lab.bench.many import KINDS, ManySizes, job
from slicemill_lab.bench.measuring.many_side import memory_mb
from slicemill_oracle.runner import run_script


def test_a_thousand_queries_are_different_and_valid(tmp_path: Path) -> None:
    made = job(tmp_path, ManySizes(1_000, 1))
    queries = mixed_queries(1_000, KINDS)
    assert len(set(queries.values())) == 1_000
    bound = bind(made["script"])
    assert len(bound.catalog.queries) == 1_000
    for statement in made["added"]:
        assert statement.partition(" AS ")[2] not in queries.values()
        bind(statement, bound.catalog)


def write_csv(batches: list[Batch], folder: Path) -> None:
    for stream, of in (("bid", "bids"), ("offer", "offers")):
        with (folder / f"{stream}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            columns = getattr(batches[0], of)
            writer.writerow(columns)
            for batch in batches:
                rows = getattr(batch, of)
                writer.writerows(zip(*(rows[name].tolist() for name in columns), strict=True))
                writer.writerow(
                    [batch.last_us if name == "ts" else 0 if name == "price" else -1 for name in columns]
                )


def test_expected_results_equal_those_of_the_reference_engine(tmp_path: Path) -> None:
    batches = make_batches(1)
    few = [
        Batch({k: v[:300] for k, v in b.bids.items()}, {k: v[:60] for k, v in b.offers.items()}, b.last_us)
        for b in batches
    ]
    write_csv(few, tmp_path)
    queries = dict(list(mixed_queries(1_000, KINDS).items())[::31])
    assert {name.partition("_")[0] for name in queries} == set(KINDS)
    statements = [
        f"CREATE STREAM {stream} ({columns} MICROS) ORDER BY ts USING csv "
        f"OPTIONS (path '{tmp_path / stream}.csv', header true);"
        for stream, columns in STREAMS.items()
    ]
    statements += [f"CREATE QUERY {name} AS {text};" for name, text in queries.items()]
    expected = ExpectedOfMany(few)
    found = {query.name: query.rows for query in run_script(bind("\n".join(statements)).catalog).queries}
    for name, rows in found.items():
        # The reference engine ends its input, so windows open at the last rows report, too.
        ended = [ts for ts, _ in rows if ts <= few[-1].last_us]
        assert expected.count(name) <= len(ended) <= expected.count(name) + 1, name


def test_the_memory_of_this_process_is_measured() -> None:
    assert memory_mb()["driver"]["processes"] == 1
    assert memory_mb()["driver"]["rss"] > 0


def test_every_module_with_a_benchmark_is_listed() -> None:
    folder = Path(bench.__file__).parent
    having = [path.stem for path in sorted(folder.glob("*.py")) if "\nBENCHMARK = " in path.read_text()]
    assert having == list(NAMES)


@pytest.mark.parametrize("kind", KINDS)
def test_later_batches_only_add_results(kind: str) -> None:
    batches = make_batches(2)
    counts = [ExpectedOfMany(batches[: number + 1]).count(f"{kind}_3") for number in range(2)]
    assert 0 < counts[0] < counts[1]
