"""Workloads: streams of files, queries over them in each system's language, and expected results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

Format: TypeAlias = Literal["parquet", "csv", "csv with epoch times"]
Language: TypeAlias = Literal["esl", "spark", "flink"]


@dataclass(frozen=True, slots=True)
class WorkloadStream:
    """Stream of files, ordered by time. Times are whole milliseconds where rows near a window border matter.

    The first Parquet file is processed before the measurement. As CSV there are two files: the first one, and
    one with all other rows. Flink reads several files in any order and would drop rows as late. Flink reads
    times faster as numbers of milliseconds than as text.
    """

    columns: Mapping[str, str]
    parquet: Sequence[Path]

    def files(self, form: Format) -> Sequence[Path]:
        """Return the files in a format. CSV files are written beside the Parquet files on first use."""
        if form == "parquet":
            return self.parquet
        folder = self.parquet[0].parent / f"{form}, {len(self.parquet)} files"
        paths = [folder / "00000.csv", folder / "00001.csv"]
        if not folder.exists():
            folder.mkdir()
            for path, parts in zip(paths, (self.parquet[:1], self.parquet[1:]), strict=True):
                table = pa.concat_tables([pq.read_table(part) for part in parts])
                options = arrow_csv.WriteOptions(include_header=False, quoting_style="none")
                arrow_csv.write_csv(_with_times(table, form), path, options)
        return paths

    @property
    def rows(self) -> int:
        """Number of measured rows."""
        return sum(pq.read_metadata(path).num_rows for path in self.parquet[1:])


def _with_times(table: pa.Table, form: Format) -> pa.Table:
    place = table.column_names.index("ts")
    times = table.column("ts")
    if form == "csv":
        # As text without a time zone, which all systems read as UTC.
        found = pc.strftime(times.cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
    else:
        found = pc.divide(times.cast(pa.int64()), 1_000)
    return table.set_column(place, "ts", found)


@dataclass(frozen=True, slots=True)
class WorkloadQuery:
    """Query in each language, with the number of results after the first files and after all files."""

    text: Mapping[Language, str]
    first: int
    expected: int


@dataclass(frozen=True, slots=True)
class FileWorkload:
    """Queries that run together. Without `watermarks`, no system needs to track time for them."""

    name: str
    streams: Mapping[str, WorkloadStream]
    queries: Sequence[WorkloadQuery]
    watermarks: bool = True

    @property
    def rows(self) -> int:
        return sum(stream.rows for stream in self.streams.values())

    def job(self, language: Language, form: Format, folder: Path) -> dict[str, Any]:
        """Return the job for a side. The files of each stream arrive in a folder of its name in `folder`."""
        return {
            "folder": str(folder),
            "format": "parquet" if form == "parquet" else "csv",
            "streams": {
                name: {"columns": dict(stream.columns), "folder": str(folder / name)}
                for name, stream in self.streams.items()
            },
            "queries": [query.text[language] for query in self.queries],
            "watermarks": self.watermarks,
            "first": [query.first for query in self.queries],
            "expected": [query.expected for query in self.queries],
        }


def reading(name: str, stream: WorkloadStream) -> FileWorkload:
    """Return a workload that only reads and counts a stream, to measure the cost of reading."""
    select = f"SELECT {', '.join(stream.columns)} FROM {name}"
    first = pq.read_metadata(stream.parquet[0]).num_rows
    texts: Mapping[Language, str] = {"esl": select, "spark": select, "flink": select}
    return FileWorkload(
        "reading", {name: stream}, [WorkloadQuery(texts, first, first + stream.rows)], watermarks=False
    )
