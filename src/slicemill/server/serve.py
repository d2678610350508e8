"""The life of a server: open the home, take up what it has, listen, end in order."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console

from slicemill.engine.mill import Mill
from slicemill.esl import SourceText
from slicemill.server.access import Access
from slicemill.server.audit import AuditLog
from slicemill.server.network import Listening, serving
from slicemill.server.permissions import Allowed
from slicemill.server.service import MillService

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger("slicemill")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of `slicemill serve`: the home, what to declare first, for how long, and what others may do."""

    home: Path | None = None
    script: SourceText | None = None
    seconds: float | None = None
    allowed: Allowed = field(default_factory=Allowed)


def run_server(listening: Listening, options: ServeOptions, spark: Future[SparkSession]) -> None:
    """Serve until the time is over or somebody ends the process; state is written before it ends."""
    console = Console(stderr=True)
    with _ends_when_told() as ended:
        with console.status("opening the home") as status:
            mill = Mill(spark, options.home, progress=status.update)
        with mill:
            for name in mill.restore():
                _LOGGER.warning("%s, kept in %s, cannot be read by this version", name, mill.home.folder)
            service = MillService(mill, options.allowed, AuditLog(options.home))
            if options.script is not None:
                mill.execute(options.script)
            mill.start()
            with serving(service, listening, Access(options.home)) as url:
                console.print(f"slicemill serves {len(mill.queries)} queries at {url}", soft_wrap=True)
                if listening.postgres_url is not None:
                    console.print(f"and to clients of PostgreSQL at {listening.postgres_url}", soft_wrap=True)
                ended.wait(options.seconds)
                console.print("ending: state is written")


@contextmanager
def _ends_when_told() -> Iterator[threading.Event]:
    """An event that is set by ctrl-c and by SIGTERM."""
    ended = threading.Event()

    def end(_: int, __: FrameType | None) -> None:
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
