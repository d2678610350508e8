"""Testbeds of quality of service (P36) and quality of data (P37), as queries for a mill.

A query selects, looks up a stored relation (P36) or selects once more (P37), and projects. Each of the three
operators hashes a long text, in cost class i 2^i times as long as in class 0. So the cost of one row exceeds
the fixed cost of a run, and scheduling rows matters. The first two operators keep the rows whose attributes,
uniform in 1 to 100, do not exceed the query's percentage. A running sum by a key of its own puts each query
into its own task; queries that only select would share one task.

Arrivals are recorded before they are replayed: ON/OFF traffic on one stream (P36), or Poisson arrivals on
several streams, of which every other stream has bursts of ten (P37).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from slicemill.kernels.arrays import Int64s
from slicemill_lab.testbeds.arrivals import on_off, poisson

RELATION = "relation"
_CHARACTERS = 256 * 1024
_KEYS = 20
_ROWS_BACK = 10
_COLUMNS = "number int, k int, v int, first int, second int, tag varchar, ts timestamp"
_GRID = range(5, 100, 10)
_OTHER_BURSTS = {1: 5, 10: 1}
# Without a service level, reads at a low rate would wait for each other.
_OPTIONS = "WITH (slo = 'p99 < 20 ms')"


@dataclass(frozen=True, slots=True)
class BedQuery:
    """Query over one of the streams; `percent` of the rows pass each of its first two operators.

    An operator of class 0 hashes a text of `characters` characters.
    """

    number: int
    stream: str
    cost_class: int
    percent: int
    looks_up: bool
    characters: int

    @property
    def name(self) -> str:
        return f"q{self.number}"

    @property
    def esl(self) -> str:
        key = f"k + {self.number}"
        summed = f"sum(v) OVER (PARTITION BY {key} ROWS {_ROWS_BACK} PRECEDING) AS s"
        kept = (
            f"SELECT number, second, tag, s FROM "
            f"(SELECT number, first, second, tag, {summed} FROM {self.stream}) AS summed "
            f"WHERE {self._hash('tag')} <> '' AND first <= {self.percent}"
        )
        other = f", {RELATION} AS r" if self.looks_up else ""
        chosen = f"r.id = second AND r.id <= {self.percent}" if self.looks_up else f"second <= {self.percent}"
        return (
            f"CREATE QUERY {self.name} {_OPTIONS} AS SELECT number, s, {self._hash('mark')} AS h FROM "
            f"(SELECT number, s, {'label' if self.looks_up else 'tag'} AS mark FROM ({kept}) AS kept{other} "
            f"WHERE {self._hash('tag || tag')} <> '' AND {chosen}) AS chosen"
        )

    def _hash(self, text: str) -> str:
        """Return an expression with 2^i times the hash work in class i."""
        length = {"tag": 128, "mark": 128, "tag || tag": 256}[text]
        characters = self.characters * min(2**self.cost_class, 2)
        for _ in range(max(2**self.cost_class // 2, 1)):
            text, length = f"sha2(repeat({text}, {characters // length}), 512)", 128
        return text


class ArrivingRows(NamedTuple):
    """Rows of a stream that arrive together."""

    at_s: float
    stream: str
    rows: pa.Table


Recording = Sequence[ArrivingRows]


@dataclass(frozen=True, slots=True)
class QueryBed:
    """Queries over streams. `bursts` has the number of rows that arrive together, by stream."""

    id: str
    queries: tuple[BedQuery, ...]
    bursts: tuple[int, ...]

    @property
    def streams(self) -> list[str]:
        return [f"reading{number}" for number in range(len(self.bursts))]

    @property
    def relation(self) -> list[tuple[object, ...]]:
        return [(number, f"{number:0128d}") for number in range(1, 101)]

    @property
    def script(self) -> str:
        streams = "".join(f"CREATE STREAM {name} ({_COLUMNS}) ORDER BY ts;\n" for name in self.streams)
        table = f"CREATE TABLE {RELATION} (id int, label varchar);\n"
        return streams + table + "".join(f"{query.esl};\n" for query in self.queries)

    def recorded(self, gap_s: float, count: int, seed: int) -> Recording:
        """Record arrivals of `count` rows of each stream, with a mean gap between two rows."""
        random = np.random.default_rng(seed)
        found: list[ArrivingRows] = []
        for stream, burst in zip(self.streams, self.bursts, strict=True):
            is_traffic = len(self.bursts) == 1
            times = on_off(count, gap_s, random) if is_traffic else poisson(count, gap_s, random)
            attributes = random.integers(1, 101, (2, count))
            for first in range(0, count, burst):
                rows = _rows(np.arange(first, first + burst), attributes[:, first : first + burst], random)
                # The burst maker: ten tuples arrive at the time of the first.
                found.append(ArrivingRows(float(times[first]), stream, rows))
        return sorted(found, key=lambda arrival: arrival.at_s)

    def grid(self, *, other_bursts: bool = False) -> Recording:
        """Return a hundred rows of every stream with evenly spread attributes, which show all selectivities.

        The number of rows that arrive together is that of the stream, or a different one. All arrive within a
        second.
        """
        random = np.random.default_rng(100)
        attributes = np.array([(first, second) for first in _GRID for second in _GRID]).T
        found = []
        for stream, burst in zip(self.streams, self.bursts, strict=True):
            shuffled = random.permutation(attributes, axis=1)
            size = _OTHER_BURSTS[burst] if other_bursts else burst
            for first in range(0, shuffled.shape[1], size):
                numbers = np.arange(first, first + size)
                found.append(ArrivingRows(first / 100, stream, _rows(numbers, shuffled[:, numbers], random)))
        return sorted(found, key=lambda arrival: arrival.at_s)


def quality_of_service(queries: int, classes: int = 5, characters: int = _CHARACTERS) -> QueryBed:
    """P36: one stream; cost classes are equally frequent, percentages random."""
    percents = np.random.default_rng(36).integers(10, 101, queries)
    made = tuple(
        BedQuery(n, "reading0", n % classes, int(percent), looks_up=True, characters=characters)
        for n, percent in enumerate(percents)
    )
    return QueryBed("P36", made, (1,))


def quality_of_data(queries: int, streams: int, classes: int = 3, characters: int = _CHARACTERS) -> QueryBed:
    """P37: every other stream has bursts of ten; percentages are multiples of ten, equally probable."""
    random = np.random.default_rng(37)
    cost_classes, tenths = random.permutation(np.arange(queries) % classes), random.integers(1, 11, queries)
    made = tuple(
        BedQuery(
            n,
            f"reading{n % streams}",
            int(cost_classes[n]),
            10 * int(tenths[n]),
            looks_up=False,
            characters=characters,
        )
        for n in range(queries)
    )
    return QueryBed("P37", made, tuple(10 if number % 2 else 1 for number in range(streams)))


def shifted(rows: pa.Table, turn: int) -> pa.Table:
    """Return the same rows for another turn: later, and in separate partitions."""
    keys = rows.column("k").to_numpy() + turn * 1_000
    ts = turn * 1_000_000_000 + rows.column("number").to_numpy().astype(np.int64) * 1_000
    changed = rows.set_column(rows.schema.get_field_index("k"), "k", pa.array(keys, pa.int32()))
    moments = pa.array(ts, pa.timestamp("us", tz="UTC"))
    return changed.append_column("ts", moments)


def _rows(numbers: Int64s, attributes: Int64s, random: np.random.Generator) -> pa.Table:
    def whole(values: Int64s) -> pa.Array:
        return pa.array(values, pa.int32())

    return pa.table(
        {
            "number": whole(numbers),
            "k": whole(random.integers(0, _KEYS, len(numbers))),
            "v": whole(random.integers(0, 1_000, len(numbers))),
            "first": whole(attributes[0]),
            "second": whole(attributes[1]),
            "tag": [f"{number:0128d}" for number in numbers],
        }
    )
