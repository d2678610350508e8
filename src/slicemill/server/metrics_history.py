"""Metrics over time: one ring buffer of samples per query, and one for the engine."""

from __future__ import annotations

import json
import logging
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather

QUERY_FIGURES = (
    "rate",
    "p50_ms",
    "p99_ms",
    "slowdown",
    "staleness",
    "rows_waiting",
    "state_bytes",
    "cpu",
    "lag_s",
    "shed",
    "accuracy",
)
MILL_FIGURES = ("rate", "response_ms", "slowdown", "rows_waiting", "cpu")
EVERY_S = 5.0
SAMPLES_KEPT = 360  # half an hour of samples


class MetricRing:
    """Ring buffer of samples of some metrics, with four bytes per value.

    A missing value is null.
    """

    def __init__(self, figures: Sequence[str], kept: int = SAMPLES_KEPT) -> None:
        self.figures = tuple(figures)
        self._kept = kept
        self._at = array("d")
        self._values = array("f")

    @classmethod
    def of(cls, figures: Sequence[str], at_s: array[float], values: array[float]) -> MetricRing:
        """Restore a ring buffer from the arrays that `stored` returned."""
        ring = cls(figures)
        ring._at, ring._values = at_s, values
        return ring

    def stored(self) -> tuple[array[float], array[float]]:
        """Return the sample times, and the values of all metrics, sample by sample."""
        return self._at[-self._kept :], self._values[-self._kept * len(self.figures) :]

    def __len__(self) -> int:
        return len(self._at)

    def add(self, at_s: float, values: Mapping[str, float | None]) -> None:
        self._at.append(at_s)
        for name in self.figures:
            value = values.get(name)
            self._values.append(math.nan if value is None else value)
        # The arrays are trimmed rarely, so that the mean cost of a sample stays small.
        if len(self._at) >= 2 * self._kept:
            width = len(self.figures)
            self._values = self._values[-self._kept * width :]
            self._at = self._at[-self._kept :]

    def columns(self) -> dict[str, list[float | None]]:
        """Return sample times in seconds under `at`, and a column for each metric."""
        count, width = min(len(self._at), self._kept), len(self.figures)
        first = len(self._at) - count
        found: dict[str, list[float | None]] = {"at": [round(at, 3) for at in self._at[first:]]}
        for index, name in enumerate(self.figures):
            found[name] = [_number(value) for value in self._values[first * width + index :: width]]
        return found

    def last(self, name: str) -> float | None:
        """Return the newest value of a metric that is not null."""
        width, index = len(self.figures), self.figures.index(name)
        for position in range(len(self._values) - width + index, -1, -width):
            if not math.isnan(self._values[position]):
                return self._values[position]
        return None


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


# File of the metrics history, so that charts continue after a restart
#
# The file is an Arrow file in the home directory. It has a row for each query and a row with an empty name
# for the engine. Scheduling policies and events are in the metadata. Only charts use the history, so a
# damaged file or a file of another version is ignored.


_LOGGER = logging.getLogger("slicemill")
_VERSION = 1
_MILL = ""
_SCHEMA = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("at", pa.list_(pa.float64()), nullable=False),
        pa.field("values", pa.list_(pa.float32()), nullable=False),
    ]
)


@dataclass(slots=True)
class MetricsHistory:
    """History of metrics (ring buffers), of scheduling policies with their times, and of events."""

    queries: dict[str, MetricRing] = field(default_factory=dict)
    mill: MetricRing = field(default_factory=lambda: MetricRing(MILL_FIGURES))
    policies: list[tuple[float, str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)


def write_history(path: Path, kept: MetricsHistory) -> None:
    """Replace the file of the history atomically. Concurrent readers see the old or the new file."""
    rings: list[tuple[str, MetricRing]] = [(_MILL, kept.mill), *kept.queries.items()]
    about = {
        "version": _VERSION,
        "figures": _figures(),
        "policies": kept.policies,
        "events": kept.events,
    }
    table = pa.table(
        [
            pa.array([name for name, _ in rings], pa.string()),
            _lists((ring.stored()[0] for _, ring in rings), pa.float64()),
            _lists((ring.stored()[1] for _, ring in rings), pa.float32()),
        ],
        schema=_SCHEMA.with_metadata({"slicemill": json.dumps(about)}),
    )
    fresh = path.with_suffix(".new")
    feather.write_feather(table, fresh, compression="zstd")
    fresh.replace(path)


def read_history(path: Path) -> MetricsHistory:
    """Read the history from its file. Return an empty history if the file is missing or unreadable."""
    try:
        table = feather.read_table(path)
        about = json.loads(table.schema.metadata[b"slicemill"])
    except FileNotFoundError:
        return MetricsHistory()
    except (OSError, KeyError, ValueError, TypeError, pa.ArrowInvalid) as problem:
        _LOGGER.warning(
            "the history of charts in %s cannot be read, so the charts start empty: %s", path, problem
        )
        return MetricsHistory()
    if about.get("version") != _VERSION or about.get("figures") != _figures():
        return MetricsHistory()
    kept = MetricsHistory(policies=[(at, name) for at, name in about["policies"]], events=about["events"])
    for row in table.to_pylist():
        figures = QUERY_FIGURES if row["query"] != _MILL else MILL_FIGURES
        ring = MetricRing.of(figures, array("d", row["at"]), array("f", row["values"]))
        if row["query"] == _MILL:
            kept.mill = ring
        else:
            kept.queries[row["query"]] = ring
    return kept


def _figures() -> list[list[str]]:
    return [list(QUERY_FIGURES), list(MILL_FIGURES)]


def _lists(parts: Iterable[array[float]], kind: pa.DataType) -> pa.ListArray:
    offsets, values = [0], array("d" if kind == pa.float64() else "f")
    for part in parts:
        values.extend(part)
        offsets.append(len(values))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(memoryview(values), kind))
