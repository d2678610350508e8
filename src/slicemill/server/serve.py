"""Life cycle of a server: open the home directory, restore queries, listen, and shut down."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import psutil
from rich.console import Console

from slicemill.api.mill import Mill
from slicemill.api.status import sources_polled
from slicemill.errors import SlicemillError
from slicemill.server.adhoc.pool import AdhocLimits, QueryProcessPool
from slicemill.server.audit import AuditLog
from slicemill.server.auth import Access
from slicemill.server.http.console_routes import NOT_BUILT, console_files
from slicemill.server.logs import LogFormat, logging_to_stderr, note_event
from slicemill.server.network import ServerSockets, serving
from slicemill.server.permissions import ClientPermissions
from slicemill.server.service import MillService
from slicemill.sql.cursor import StatementPiece, pieces
from slicemill.sql.errors import EslError, SourceText

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger("slicemill")
_CHECK_EVERY_S = 1.0
_RETRY_EVERY_S = 5.0
# seconds for workers to write their state at shutdown, and for the process to end
_WRITE_S, _END_S = 10.0, 25.0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of `slicemill serve`: home directory, start-up script, run time, permissions of clients."""

    home: Path | None = None
    script: SourceText | None = None
    seconds: float | None = None
    allowed: ClientPermissions = field(default_factory=ClientPermissions)
    log_format: LogFormat = LogFormat.TEXT
    adhoc_queries: AdhocLimits = field(default_factory=AdhocLimits)


def run_server(
    listening: ServerSockets, access: Access, options: ServeOptions, spark: Future[SparkSession]
) -> None:
    """Serve until the run time is over or a signal arrives, then write the state."""
    with logging_to_stderr(options.log_format), _home_of(options) as home:
        _serve_home(home, listening, access, options, spark)


def _serve_home(
    home: Path, listening: ServerSockets, access: Access, options: ServeOptions, spark: Future[SparkSession]
) -> None:
    with _handle_signals(home if options.home is None else None) as ending:
        mill, adhoc_queries = _open_mill(home, options, spark), QueryProcessPool(options.adhoc_queries)
        try:
            service = MillService(mill, options.allowed, AuditLog(options.home), adhoc_queries)
            service.other_problems.append(access.problems)
            waiting = PendingStatements(service)
            # The script runs first. A statement that the home directory contains as well is applied once.
            if options.script is not None:
                waiting.declare(options.script)
            for name in mill.statements.restore():
                note_event(
                    "problem",
                    f"{name} in {mill.home.folder} cannot be read by this version of slicemill",
                    logging.WARNING,
                )
            mill.start()
            with serving(service, listening, access) as url:
                ending.started()
                _log_start(mill, url, listening.postgres_url, options)
                _watch(service, waiting, ending.wanted, options.seconds)
                note_event("stopping", "the server is shutting down and writes its state")
                adhoc_queries.close()  # clients that wait for an answer receive an error
        finally:
            adhoc_queries.close()
            mill.close(within_s=_WRITE_S)
        note_event("stop", "the server has stopped")


@contextmanager
def _home_of(options: ServeOptions) -> Iterator[Path]:
    """Yield the home directory, or a temporary folder if none is given."""
    if options.home is not None:
        yield options.home
        return
    with tempfile.TemporaryDirectory(prefix="slicemill-") as folder:
        yield Path(folder)


def _open_mill(home: Path, options: ServeOptions, spark: Future[SparkSession]) -> Mill:
    if options.log_format is LogFormat.TEXT and sys.stderr.isatty():
        with Console(stderr=True).status("opening the home directory") as status:
            return Mill(spark, home, progress=status.update)
    return Mill(spark, home)


def _log_start(mill: Mill, url: str, postgres_url: str | None, options: ServeOptions) -> None:
    message = f"slicemill serves {len(mill.queries)} queries at {url}"
    if postgres_url is not None:
        message += f", and to clients of PostgreSQL at {postgres_url}"
    if not console_files():
        message += f"; {NOT_BUILT}"
    if options.home is None:
        message += "; without --home, all queries and results are deleted when it stops"
    note_event(
        "start",
        message,
        url=url,
        postgres=postgres_url,
        home=str(options.home) if options.home is not None else None,
        queries=len(mill.queries),
        pid=os.getpid(),
    )
    _notify_systemd("READY=1")


def _watch(
    service: MillService, waiting: PendingStatements, ended: threading.Event, seconds: float | None
) -> None:
    """Log each problem once and retry pending statements, until the server ends.

    If the engine has failed, its error ends the server, and a supervisor restarts the server. `seconds` count
    from the time when every source has been polled.
    """
    ends: float | None = None
    logged: list[str] = []
    tried = time.monotonic()
    while not ended.is_set() and (ends is None or time.monotonic() < ends):
        found = _problems(service)
        for problem in found:
            if problem not in logged:
                note_event("problem", problem, logging.WARNING)
        if logged and not found:
            note_event("recovered", "all problems are solved")
        logged = found
        service.mill.dispatcher.check()
        if seconds is not None and ends is None and (found or sources_polled(service.mill)):
            ends = time.monotonic() + seconds
        if time.monotonic() - tried > _RETRY_EVERY_S:
            for declared in waiting.retry_pending():
                note_event("statement", f"{declared}: succeeded after a retry")
            tried = time.monotonic()
        left = _CHECK_EVERY_S if ends is None else min(_CHECK_EVERY_S, max(0.0, ends - time.monotonic()))
        ended.wait(left)


def _problems(service: MillService) -> list[str]:
    """Return the problems of a service. An unreadable status file is a problem, too."""
    try:
        return service.problems()
    except OSError as problem:
        return [f"the status cannot be read: {problem.strerror or problem}"]


def _notify_systemd(state: str) -> None:
    """Notify systemd, if the process was started as a service of type notify."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
    except OSError as problem:
        _LOGGER.warning("systemd could not be notified: %s", problem)


class _ShutdownHandler:
    """Handler of ctrl-c and SIGTERM.

    While the server starts, a signal ends the process at once. No data are lost, because no client is
    connected yet and the home directory survives a kill. After the start, the server first writes its state.
    If writing takes too long, the process ends without the state, and the next server replays the logs.
    """

    def __init__(self, temporary: Path | None) -> None:
        self.wanted = threading.Event()
        self._temporary = temporary
        self._starting = True

    def started(self) -> None:
        """Let later signals write the state before the process ends."""
        self._starting = False

    def handle_signal(self, _: int, __: FrameType | None) -> None:
        """Handle a signal: end the process at once, or let the server write its state first."""
        if self._starting:
            self._end_process("stop", "the server was stopped during its start", 0)
        if not self.wanted.is_set():
            self.wanted.set()
            timer = threading.Timer(_END_S, self._give_up)
            timer.daemon = True
            timer.start()

    def _give_up(self) -> None:
        message = (
            f"shutdown took more than {_END_S:.0f} s; the next start replays rows whose state was not written"
        )
        self._end_process("problem", message, 1)

    def _end_process(self, event: str, message: str, status: int) -> None:
        note_event(event, message)
        with suppress(psutil.Error):
            for child in psutil.Process().children(recursive=True):  # the JVM of Spark would end only later
                with suppress(psutil.Error):
                    child.kill()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        os._exit(status)


@contextmanager
def _handle_signals(temporary: Path | None) -> Iterator[_ShutdownHandler]:
    """Handle ctrl-c and SIGTERM during the with block.

    The folder `temporary` is removed when the process is killed.
    """
    ending = _ShutdownHandler(temporary)
    before = {
        number: signal.signal(number, ending.handle_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Start-up script of a server, with retry of statements that cannot be declared yet
#
# The engine itself retries a source that is down. But a table whose file is missing, or a location that
# cannot be opened, cannot be declared at all. Such a statement and the statements that depend on it are
# retried later. All other statements run.


class PendingStatements:
    """Statements of a script that could not be declared yet, with their errors."""

    def __init__(self, service: MillService) -> None:
        self._service = service
        self._waiting: list[tuple[StatementPiece, SlicemillError]] = []
        self._lock = threading.Lock()
        service.other_problems.append(self.problems)

    def declare(self, source: SourceText) -> None:
        """Declare all statements of a script that can be declared.

        Raise EslError, without any effect, if the text is invalid.
        """
        try:
            self._service.declare(source, None)
        except EslError:
            raise
        except SlicemillError:
            self._declare_each(pieces(source))

    def retry_pending(self) -> list[str]:
        """Retry the pending statements. Return the statements that have succeeded."""
        with self._lock:
            before = [piece for piece, _ in self._waiting]
            if before:
                self._declare_each(before)
            left = [piece for piece, _ in self._waiting]
        return [_short(piece) for piece in before if piece not in left]

    def problems(self) -> list[str]:
        """Return the pending statements with their errors."""
        return [f"statement {_short(piece)} failed and is retried: {why}" for piece, why in self._waiting]

    def _declare_each(self, found: Sequence[StatementPiece]) -> None:
        """Declare statements one by one.

        A statement that depends on a waiting statement fails and waits as well.
        """
        waiting: list[tuple[StatementPiece, SlicemillError]] = []
        for piece in found:
            try:
                self._service.declare(piece.alone(), None)
            except SlicemillError as problem:
                waiting.append((piece, problem))
            except OSError as problem:  # for example too many open files
                waiting.append((piece, SlicemillError(problem.strerror or str(problem))))
        self._waiting = waiting


def _short(piece: StatementPiece) -> str:
    words = piece.text.split()
    return " ".join(words[:3]) + (" …" if len(words) > 3 else "")
