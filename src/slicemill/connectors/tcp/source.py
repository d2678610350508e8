"""Lines from a TCP socket as a Spark streaming source, exactly once: `tcp://host:port`.

    spark.dataSource.register(TcpSource)
    spark.readStream.format("slicemill-tcp").options(host="localhost", port=4445, spool="…").load()

Rows have one column, `value`: a line as it came, without its end, whatever its bytes mean. Offsets are the
numbers of spool files (see `tcp_source_spool`); the folder `spool` must outlive the query, as its checkpoint
does, and be seen by all executors.

Options: `host`, `port`, `spool`, `patience` (seconds until a sender that never answered is an error; 0: wait
for ever), `pause` (seconds of silence that end an availableNow run), `maxBytesPerTrigger`, and
`maxSpoolBytes` (from there on the sender has to wait).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from slicemill.connectors.tcp.spool import Pump, Spool, file_bytes, remove_through, sealed_files
from slicemill.errors import SlicemillError

FORMAT = "slicemill-tcp"

_SCHEMA = pa.schema([pa.field("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class TcpOptions:
    host: str
    port: int
    spool: Path
    patience_s: float
    pause_s: float
    max_trigger_bytes: int
    max_spool_bytes: int


class SpoolFile(InputPartition):
    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


def tcp_options(given: Mapping[str, str]) -> TcpOptions:
    """Options as Spark passes them, checked; their names are not case-sensitive."""
    options = {key.lower(): str(value) for key, value in given.items()}
    missing = [name for name in ("host", "port", "spool") if not options.get(name)]
    if missing:
        raise SlicemillError(f"a TCP source needs the option {missing[0]}")
    patience_s = _number(options, "patience", "30")
    return TcpOptions(
        host=options["host"],
        port=_port(options["port"]),
        spool=Path(options["spool"]),
        patience_s=patience_s if patience_s > 0 else math.inf,
        pause_s=_number(options, "pause", "0.5"),
        max_trigger_bytes=int(_number(options, "maxbytespertrigger", str(64 << 20))),
        max_spool_bytes=int(_number(options, "maxspoolbytes", str(256 << 20))),
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise SlicemillError(f"a TCP port is a number from 1 to 65535, not {text!r}")
    return int(text)


def _number(options: Mapping[str, str], name: str, default: str) -> float:
    text = options.get(name, default)
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise SlicemillError(f"a TCP source's option {name} is a number of 0 or more, not {text!r}")
    return number


class TcpSource(DataSource):
    """The `slicemill-tcp` format."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "value BINARY"

    # Spark passes the schema by name.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return TcpStreamReader(tcp_options(self.options))


class TcpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"file": n}`: the lines of spool files up to number n are out.

    Spark makes several readers of one query. Only the one that is asked for the latest offset receives.
    """

    def __init__(self, options: TcpOptions) -> None:
        self._options = options
        self._spool: Spool | None = None
        self._pump: Pump | None = None
        self._draining = False
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"file": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._options.max_trigger_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._draining = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        taken = start["file"]
        spool, pump = self._receiving(taken)
        # A stream that has had lines before may well wait for its sender to come back.
        patience_s = self._options.patience_s if spool.last == 0 else math.inf
        if not self._draining:
            pump.check_somebody_answered(patience_s)
            return {"file": self._within(taken, spool.seal(), limit)}
        if self._target is None:
            pump.wait_until_quiet(self._options.pause_s, self._options.patience_s)
            self._target = spool.seal()
        return {"file": self._within(taken, self._target, limit)}

    def _receiving(self, taken: int) -> tuple[Spool, Pump]:
        if self._spool is None or self._pump is None:
            options = self._options
            self._spool = Spool(options.spool, after=taken)
            self._pump = Pump(options.host, options.port, self._spool, options.max_spool_bytes)
            self._pump.start()
        return self._spool, self._pump

    def _within(self, taken: int, last: int, limit: ReadLimit) -> int:
        """The last file that the limit allows; at least one, so that a big one is no dead end."""
        if isinstance(limit, ReadAllAvailable):
            return max(taken, last)
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_trigger_bytes
        end = taken
        size = 0
        for number, path in sealed_files(self._options.spool).items():
            if taken < number <= last:
                size += file_bytes(path)
                if size > most and end > taken:
                    break
                end = number
        return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        files = sealed_files(self._options.spool)
        wanted = range(start["file"] + 1, end["file"] + 1)
        missing = [number for number in wanted if number not in files]
        if missing:
            raise SlicemillError(
                f"spool file {missing[0]} is missing in {self._options.spool}; a query and its spool folder "
                "go together, as do a query and its checkpoint"
            )
        return [SpoolFile(files[number]) for number in wanted]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SpoolFile):
            lines = partition.path.read_bytes().removesuffix(b"\n").split(b"\n")
            values = [line.removesuffix(b"\r") for line in lines]
            yield pa.record_batch([pa.array(values, pa.binary())], schema=_SCHEMA)

    def commit(self, end: dict[str, int]) -> None:
        remove_through(self._options.spool, end["file"])

    def stop(self) -> None:
        if self._pump is not None:
            self._pump.stop()
