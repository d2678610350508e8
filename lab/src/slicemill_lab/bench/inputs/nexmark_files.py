"""NEXMark events as Parquet files of three streams, and the expected number of rows of each query.

    0000.parquet … 000w.parquet   … 000n.parquet last.parquet
    └──────── warm up ────────┘   └─────── measured ────────┘

The last file of each stream has one row, an hour later, without any matches. It completes all windows of
earlier rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from slicemill.connectors.generators.nexmark import STREAMS
from slicemill_lab.bench.inputs.nexmark_answers import OFFER
from slicemill_lab.bench.inputs.nexmark_queries import FOLDER, event_tables

COLUMNS: Mapping[str, str] = {
    "person": "id BIGINT, name STRING, email STRING, city STRING, state STRING, ts TIMESTAMP",
    "auction": "id BIGINT, item STRING, initial_bid BIGINT, reserve BIGINT, expires TIMESTAMP, "
    "seller BIGINT, category INT, ts TIMESTAMP",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, ts TIMESTAMP",
}
# Queries with windows that the last row opens, and that never end.
_WITH_OPEN_WINDOWS = ("q05", "q07", "q08", "q11")
_UTC = pa.timestamp("us", "UTC")
_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class NexmarkFiles:
    """Files of each stream in row order: for the warm-up, and for the measurement."""

    warm: Mapping[str, Sequence[Path]]
    measured: Mapping[str, Sequence[Path]]
    warm_rows: int
    rows: int

    def expected(self, root: Path, answers: Mapping[str, str], *, ended: bool = False) -> dict[str, int]:
        """Return the number of rows of each answer. `root` is the folder above the examples.

        With `ended`, the input of each stream ends before the last file.
        """
        found: dict[str, int] = {}
        with duckdb.connect(config={"threads": 1}) as database:
            database.execute("SET TimeZone = 'UTC'")
            database.execute(f"CREATE VIEW side AS FROM '{root / FOLDER / 'side.csv'}'")
            for closing in (True, False):
                for stream, measured in self.measured.items():
                    paths = [*self.warm[stream], *(measured if closing else measured[:-1])]
                    listed = [str(path) for path in paths]
                    database.execute(f"CREATE OR REPLACE VIEW {stream} AS FROM read_parquet({listed})")
                database.execute(OFFER.replace("CREATE", "CREATE OR REPLACE"))
                for name, answer in answers.items():
                    if (ended or name in _WITH_OPEN_WINDOWS) != closing:
                        counted = database.execute(f"SELECT count(*) FROM ({answer})").fetchall()
                        found[name] = int(counted[0][0])
        return found


def write_csv(folder: Path, files: NexmarkFiles, root: Path) -> None:
    """Write the same rows as CSV for systems without Parquet: `warm.csv`, and `all.csv` without the last row.

    A finite input needs no row that ends windows. The lookup table of the examples is written as well.
    """
    with duckdb.connect(config={"threads": 1}) as database:
        database.execute("SET TimeZone = 'UTC'")
        texts = {
            (stream, kind): f"FROM read_parquet({[str(path) for path in paths]})"
            for stream, warm in files.warm.items()
            for kind, paths in (("warm", warm), ("all", [*warm, *files.measured[stream][:-1]]))
        }
        texts |= {("side", kind): f"FROM '{root / FOLDER / 'side.csv'}'" for kind in ("warm", "all")}
        for (stream, kind), text in texts.items():
            (folder / stream).mkdir(parents=True, exist_ok=True)
            times = [name for name in ("ts", "expires") if f"{name} TIMESTAMP" in COLUMNS.get(stream, "")]
            plain = ", ".join(f"CAST({name} AS TIMESTAMP) AS {name}" for name in times)
            rows = f"SELECT *{f' REPLACE ({plain})' if times else ''} {text}"
            options = "HEADER false, TIMESTAMPFORMAT '%Y-%m-%d %H:%M:%S.%f'"
            database.execute(f"COPY ({rows}) TO '{folder / stream / kind}.csv' ({options})")


def write_files(folder: Path, rate: int, events_per_file: int, warm: int, measured: int) -> NexmarkFiles:
    """Write files for warm-up and measurement. `rate` is in events per second of event time."""
    paths: dict[str, list[Path]] = {stream: [] for stream in STREAMS}
    for number in range(warm + measured):
        tables = event_tables(number * events_per_file, (number + 1) * events_per_file, rate)
        for stream in STREAMS:
            paths[stream].append(_written(folder / stream / f"{number:04}.parquet", tables[stream]))
    end_us = (warm + measured) * events_per_file * 1_000_000 // rate + _HOUR_US
    for place, stream in enumerate(STREAMS):
        # Ids below 0 do not occur otherwise, and none of these ids match each other.
        row = event_tables(0, 50, rate)[stream].slice(0, 1)
        strange = {"id": -1 - place, "seller": -11, "auction": -12, "bidder": -13, "category": 0, "price": 1}
        times = dict.fromkeys(("ts", "expires"), end_us)
        for name, value in {**strange, **times}.items():
            if name in row.column_names:
                index = row.column_names.index(name)
                row = row.set_column(index, name, pa.array([value]).cast(row.schema.field(name).type))
        paths[stream].append(_written(folder / stream / "last.parquet", row))
    return NexmarkFiles(
        {stream: found[:warm] for stream, found in paths.items()},
        {stream: found[warm:] for stream, found in paths.items()},
        warm * events_per_file,
        measured * events_per_file + len(STREAMS),
    )


def _written(path: Path, table: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = [
        column.cast(_UTC) if pa.types.is_timestamp(column.type) else column for column in table.columns
    ]
    pq.write_table(pa.table(columns, names=table.column_names), path)
    return path
