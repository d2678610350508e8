"""Session of one PostgreSQL client, from start-up to disconnection.

    start: [SSL?] startup → (password = token) → ready
    then   Q          simple query: a text of statements
           P B D E S  extended query: parse, bind, describe, execute, sync of one statement with
           parameters

After an error in an extended query, all messages up to the next sync are skipped.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import re
import secrets
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NoReturn, TypeVar

import pyarrow as pa
from sqlglot import exp

from slicemill import __version__
from slicemill.adhoc.errors import AdhocQueryCancelled, AdhocQueryRejected, OutOfMemory
from slicemill.adhoc.postgres_catalog import postgres_tree
from slicemill.adhoc.query import reads_system_tables
from slicemill.columns.arrow_schema import as_results, with_system_columns
from slicemill.errors import EngineStopped, SlicemillError
from slicemill.server.adhoc.messages import SystemCatalogQuery
from slicemill.server.adhoc.pool import AnswerRows
from slicemill.server.answer import StatementAnswer
from slicemill.server.auth import OWNER, Access, PermissionDenied
from slicemill.server.connections import ClientLimits, drain_writer
from slicemill.server.encoding import EpochRows
from slicemill.server.live_results import Encoder, LiveResults
from slicemill.server.postgres import wire
from slicemill.server.postgres.parameters import list_parameters, parameter_value
from slicemill.server.postgres.values import (
    TEXT,
    TEXT_KINDS,
    CopyFormat,
    describe_columns,
    encode_columns,
    encode_values,
)
from slicemill.server.service import MillService, RelationShape
from slicemill.server.user_session import UserSession, infer_types
from slicemill.sql.cursor import StatementPiece, pieces, report_deep_nesting
from slicemill.sql.errors import EslError, SourceText
from slicemill.sql.grammar.tables import ROW_CHANGES
from slicemill.storage.filesystem import StorageFull
from slicemill.storage.log import Epoch

_SUBSCRIBE = re.compile(r'\s*SUBSCRIBE\s+("(?:[^"]|"")+"|\w+)(?:\s+SINCE\s+(\d+))?\s*;?\s*$', re.IGNORECASE)
_COPY = re.compile(r"\s*COPY\s*\((.*)\)\s*TO\s+STDOUT\b(.*)$", re.IGNORECASE | re.DOTALL)
_PARAMETER = re.compile(r"\$(\d+)")
T = TypeVar("T")

_LOOK_S = 0.5
_ROWS_AT_ONCE = 1_000
_MUCH_WAITS = 32 << 10


@dataclass(slots=True)
class PreparedText:
    """Prepared statement with its parameter types.

    The client gives the types, or the statement implies them. `columns` are the result columns that were
    described to the client before parameter values were known.
    """

    text: str
    oids: tuple[int, ...]
    columns: pa.Schema | None = None


@dataclass(slots=True)
class Portal:
    """Prepared statement with parameter values. `answer` is set on the first Describe or Execute."""

    text: str
    values: tuple[object, ...]
    formats: tuple[int, ...]
    columns: pa.Schema | None = None
    answer: StatementAnswer | None = None


@dataclass(slots=True)
class CancelKey:
    """Key that a client sends on another connection to cancel a running statement."""

    process: int
    secret: int = field(default_factory=lambda: secrets.randbits(31))


class PostgresSession:
    """Session that serves one PostgreSQL client until it disconnects."""

    def __init__(
        self,
        service: MillService,
        live: LiveResults,
        access: Access,
        key: CancelKey,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        limits: ClientLimits,
    ) -> None:
        self.key = key
        self._limits = limits
        self._live = live
        self._access = access
        self._reader, self._writer = streams
        self._user = UserSession(service, OWNER, "postgres")
        self._token: str | None = None
        self._prepared: dict[str, PreparedText] = {}
        self._portals: dict[str, Portal] = {}
        self._transaction = b"I"
        self._failed = False  # True after an error, until the next sync; messages are skipped meanwhile
        self._changed = False  # True if rows were changed since the transaction began
        self.interrupted = threading.Event()

    # -- Start-up -------------------------------------------------------------------------------------

    async def start(self, tls: ssl.SSLContext | None) -> tuple[int, bytes] | None:
        """Negotiate TLS and authenticate the client. Return code and key of a cancel request, if it is one.

        If the server has a certificate, a session starts inside TLS only. A cancel request may arrive in
        clear text, as libpq sends it, because its secret is useful only while the statement runs.
        """
        asked: set[int] = set()
        while True:
            code, content = await wire.read_startup(self._reader)
            if code == wire.CANCEL_REQUEST:
                return code, content
            if code in (wire.SSL_REQUEST, wire.GSS_REQUEST) and code not in asked:
                asked.add(code)
                encrypts = code == wire.SSL_REQUEST and tls is not None
                self._writer.write(b"S" if encrypts else b"N")
                await self._writer.drain()
                if encrypts and tls is not None:
                    await self._begin_tls(tls)
            elif code >> 16 == wire.PROTOCOL_3:
                if tls is not None and wire.SSL_REQUEST not in asked:
                    await self._reject("this server requires TLS; connect with sslmode=require", "28000")
                await self._authenticate(content)
                return None
            else:
                raise wire.ProtocolError("this server supports only version 3 of the protocol")

    async def _begin_tls(self, tls: ssl.SSLContext) -> None:
        """Start TLS. Reject bytes sent before the handshake, because they are not authentic."""
        if self._reader._buffer:  # type: ignore[attr-defined]
            raise wire.ProtocolError("the client sent bytes before the TLS handshake")
        await self._writer.start_tls(tls)

    async def _reject(self, message: str, code: str) -> NoReturn:
        self._send(wire.error(message, code))
        await self._writer.drain()
        raise wire.ProtocolError(message)

    async def _authenticate(self, content: bytes) -> None:
        options = wire.startup_options(content)
        if self._access.requires_token:
            self._writer.write(wire.ASK_PASSWORD)
            await self._writer.drain()
            answer = await wire.read_message(self._reader, wire.LONGEST_START)
            if answer.kind != b"p":
                raise wire.ProtocolError("the client sent no password")
            self._token = wire.ContentReader(answer.content).text()
        principal = self._access.principal(self._token)
        if principal is None:
            await self._reject("the password is not a valid token of this server", "28P01")
        self._user.principal = principal
        settings = {**SETTINGS, "application_name": options.get("application_name", "")}
        self._writer.write(
            wire.AUTHENTICATED
            + b"".join(wire.parameter(name, value) for name, value in settings.items())
            + wire.cancel_key(self.key.process, self.key.secret)
            + wire.ready(self._transaction)
        )
        await self._writer.drain()

    # -- Serving ---------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Answer messages until the client disconnects."""
        try:
            await self._serve()
        finally:
            self.interrupted.set()
            for portal in self._portals.values():
                _close(portal)

    async def _serve(self) -> None:
        while True:
            message = await wire.read_message(self._reader)
            if message.kind == b"X":
                return
            if not self._is_known():
                self._send(wire.error("the token of this session has been revoked", "28P01"))
                await self._drain()
                return
            self.interrupted.clear()
            if message.kind == b"Q":
                await self._handle_simple_query(wire.ContentReader(message.content).text())
            elif message.kind == b"S":
                self._failed = False
                self._send(wire.ready(self._transaction))
            elif not self._failed:
                try:
                    await self._handle_extended_message(message)
                except SlicemillError as problem:
                    self._failed = True
                    self._send(_error(problem))
            await self._drain()

    def _is_known(self) -> bool:
        """Return True if the token of the client is still valid."""
        return self._access.principal(self._token) == self._user.principal

    async def _handle_simple_query(self, text: str) -> None:
        found = pieces(SourceText(text))
        if not found:
            self._send(wire.EMPTY)
        for piece in found:
            try:
                await self._answer_simple(piece)
            except SlicemillError as problem:
                self._send(_error(problem))
                break
        self._send(wire.ready(self._transaction))

    async def _answer_simple(self, piece: StatementPiece) -> None:
        text = piece.alone().text
        if copied := _COPY.match(text):
            await self._copy(copied[1], CopyFormat.of(copied[2]))
        elif subscribed := _SUBSCRIBE.match(text):
            self._send(wire.row_description(describe_columns(self._result_schema(subscribed))))
            await self._subscribe(subscribed)
        else:
            for answer in await self._answers(text, piece.words):
                if answer.rows is not None:
                    self._send(wire.row_description(describe_columns(answer.rows.schema)))
                    await self._send_rows(answer.rows, ())
                # No message is sent, because the tag has the number of rows.
                if answer.message and answer.tag.split()[0] not in ROW_CHANGES:
                    self._send(wire.notice(answer.message))
                if answer.warning:
                    self._send(wire.notice(answer.warning))
                self._send(wire.complete(_tag(answer)))

    async def _answers(
        self, text: str, words: tuple[str, str], values: Sequence[object] = ()
    ) -> list[StatementAnswer]:
        compatible = await self._run_until_disconnect(
            lambda: answer_client_statement(
                text.strip(), words, self._user.relations, self._ask_system, values
            )
        )
        if compatible is not None:
            self._note_transaction(compatible.tag)
            return [compatible]
        answers = await self._run_until_disconnect(lambda: self._user.execute(text, self.interrupted, values))
        self._changed |= words[0] in ROW_CHANGES
        return answers

    def _ask_system(self, adhoc_query: SystemCatalogQuery) -> pa.Table | None:
        pool, user = self._user.service.adhoc_queries, self._user.principal.name or ""
        return pool.ask_system(adhoc_query, user, self.interrupted)

    async def _run_until_disconnect(self, function: Callable[[], T]) -> T:
        """Run a function in a thread. Interrupt it if the client disconnects."""
        threads = self._user.service.threads
        running = asyncio.get_running_loop().run_in_executor(threads, function)
        try:
            while not (await asyncio.wait({running}, timeout=_LOOK_S))[0]:
                if _has_ended(self._reader):
                    self.interrupted.set()
        finally:
            if not running.done():
                self.interrupted.set()
        return await running

    def _note_transaction(self, tag: str) -> None:
        if tag == "ROLLBACK" and self._changed:
            self._send(
                wire.notice("ROLLBACK has no effect: each statement is committed as its own transaction")
            )
        self._changed = False
        if tag in ("BEGIN", "START TRANSACTION"):
            self._transaction = b"T"
        elif tag in ("COMMIT", "ROLLBACK"):
            self._transaction = b"I"

    async def _copy(self, inner: str, form: CopyFormat) -> None:
        if subscribed := _SUBSCRIBE.match(inner):
            names = self._result_schema(subscribed).names
            self._send(wire.copy_out(len(names)) + _header(form, names))
            async for lines in self._follow(subscribed, _lines_of(form)):
                self._send(lines)
                await self._drain()
            self._send(wire.COPY_DONE + wire.complete("COPY"))
            return
        (answer,) = await self._answers(inner, pieces(SourceText(inner))[0].words)
        rows = answer.rows if answer.rows is not None else AnswerRows.of(pa.table({}))
        self._send(wire.copy_out(len(rows.schema)) + _header(form, rows.schema.names))
        async for batch in self._batches(rows):
            self._send(b"".join(wire.copy_data(form.line(row)) for row in _rows(batch, ())))
            await self._drain()
        self._send(wire.COPY_DONE + wire.complete(f"COPY {rows.taken}"))

    async def _subscribe(self, subscribed: re.Match[str]) -> None:
        async for rows in self._follow(subscribed, _as_rows):
            self._send(rows)
            await self._drain()
        self._send(wire.complete("SUBSCRIBE"))

    def _result_schema(self, subscribed: re.Match[str]) -> pa.Schema:
        query = self._user.query(_name(subscribed))
        return as_results(with_system_columns(query.log.columns).empty_table()).schema

    async def _follow(self, subscribed: re.Match[str], encode: Encoder) -> AsyncIterator[bytes]:
        query = self._user.query(_name(subscribed))
        start = query.log.head + 1 if subscribed[2] is None else int(subscribed[2])
        direct, columns = _DirectRows(self._writer), query.log.columns
        async for epoch in self._live.follow(query, start, encode, 0.5, direct, columns):
            if self.interrupted.is_set():
                raise Interrupted("the subscription was cancelled")
            if self._reader.at_eof() or not self._is_known():
                raise ConnectionResetError
            if epoch.gap and query.schema.changelog:
                raise SlicemillError(
                    f"changes of {query.name} since that epoch have been compacted; "
                    f"start again with SUBSCRIBE {query.name} SINCE 0"
                )
            if epoch.content:
                yield epoch.content

    async def _send_rows(self, rows: AnswerRows, formats: Sequence[int], most: float = math.inf) -> None:
        async for batch in self._batches(rows, most):
            self._send(b"".join(wire.data_row(row) for row in _rows(batch, formats)))
            await self._drain()

    async def _batches(self, rows: AnswerRows, most: float = math.inf) -> AsyncIterator[pa.Table]:
        """Yield at most `most` further rows in batches.

        The remaining rows are discarded if the client disconnects.
        """
        upto = rows.taken + most
        try:
            while rows.taken < upto:
                wanted = min(_ROWS_AT_ONCE, upto - rows.taken)
                batch = await self._run_until_disconnect(partial(rows.take, wanted))
                if batch is None:
                    return
                yield pa.Table.from_batches([batch])
        except BaseException:
            rows.close()
            raise

    # -- Extended query protocol ----------------------------------------------------------------------

    async def _handle_extended_message(self, message: wire.ClientMessage) -> None:
        content = wire.ContentReader(message.content)
        if message.kind == b"P":
            name, text = content.text(), content.text()
            said = [content.int32() for _ in range(content.int16())]
            self._prepared[name] = PreparedText(text, _with_lists(text, said))
            self._send(wire.PARSED)
        elif message.kind == b"B":
            self._bind(content)
            self._send(wire.BOUND)
        elif message.kind == b"D":
            await self._describe(content.byte(), content.text())
        elif message.kind == b"E":
            await self._execute(self._portal(content.text()), content.int32())
        elif message.kind == b"C":
            kind, name = content.byte(), content.text()
            closed = (self._prepared if kind == b"S" else self._portals).pop(name, None)
            if isinstance(closed, Portal):
                _close(closed)
            self._send(wire.CLOSED)
        elif message.kind != b"H":
            raise SlicemillError(f"messages of type {message.kind!r} are not supported")

    def _bind(self, content: wire.ContentReader) -> None:
        portal, name = content.text(), content.text()
        prepared = self._statement(name)
        forms = [content.int16() for _ in range(content.int16())]
        raw = [content.value_bytes() for _ in range(content.int16())]
        formats = tuple(content.int16() for _ in range(content.int16()))
        values = []
        for index, value in enumerate(raw):
            form = forms[0] if len(forms) == 1 else forms[index] if index < len(forms) else 0
            oid = prepared.oids[index] if index < len(prepared.oids) else 0
            values.append(parameter_value(value, oid, form == 1))
        if (before := self._portals.get(portal)) is not None:
            _close(before)
        self._portals[portal] = Portal(prepared.text, tuple(values), formats, prepared.columns)

    def _statement(self, name: str) -> PreparedText:
        found = self._prepared.get(name)
        if found is None:
            raise SlicemillError(f"there is no prepared statement {name!r}")
        return found

    def _portal(self, name: str) -> Portal:
        found = self._portals.get(name)
        if found is None:
            raise SlicemillError(f"there is no portal {name!r}")
        return found

    async def _describe(self, kind: bytes, name: str) -> None:
        if kind == b"S":
            prepared = self._statement(name)
            count = max((int(number) for number in _PARAMETER.findall(prepared.text)), default=0)
            oids = [max((*prepared.oids, *[0] * count)[index], 0) or TEXT for index in range(count)]
            self._send(wire.parameter_description(oids))
            answer = await self._shape_of(prepared.text, count)
            prepared.columns = (
                answer.table.schema if answer is not None and answer.table is not None else None
            )
            formats: tuple[int, ...] = ()
        else:
            portal = self._portal(name)
            answer, formats = await self._answer_of(portal), _formats(portal)
        text = self._statement(name).text if kind == b"S" else self._portal(name).text
        if subscribed := _SUBSCRIBE.match(text):
            self._send(wire.row_description(describe_columns(self._result_schema(subscribed))))
        elif answer is None or answer.rows is None:
            self._send(wire.NO_DATA)
        else:
            self._send(wire.row_description(describe_columns(answer.rows.schema), formats))

    async def _shape_of(self, text: str, parameters: int) -> StatementAnswer | None:
        """Return an answer with a statement's result columns and no rows, or None if it has none."""
        found = pieces(SourceText(text))
        if not found or found[0].words[0] not in ("SELECT", "WITH", "VALUES", "SHOW", "DESCRIBE", "EXPLAIN"):
            return None
        if found[0].words[0] in ("SELECT", "WITH", "VALUES"):
            empty = f"SELECT * FROM ({found[0].text}) LIMIT 0"
            (answer,) = await self._answers(empty, ("SELECT", "*"), (None,) * parameters)
            return answer
        (answer,) = await self._answers(text, found[0].words)
        return answer

    async def _answer_of(self, portal: Portal) -> StatementAnswer | None:
        """Return the answer of a portal (prepared statement with parameter values).

        The statement runs once, when the portal is first described or executed.
        """
        if portal.answer is None and not _SUBSCRIBE.match(portal.text):
            found = pieces(SourceText(portal.text))
            if not found:
                return None
            if len(found) > 1:
                raise SlicemillError(
                    "a prepared statement must be a single statement; send each statement separately"
                )
            answers = await self._answers(found[0].text, found[0].words, portal.values)
            portal.answer = _cast_to_described(answers[-1], portal.columns)
        return portal.answer

    async def _execute(self, portal: Portal, most: int) -> None:
        if subscribed := _SUBSCRIBE.match(portal.text):
            await self._subscribe(subscribed)
            return
        answer = await self._answer_of(portal)
        if answer is None:
            self._send(wire.EMPTY)
            return
        if answer.rows is None:
            if answer.message:
                self._send(wire.notice(answer.message))
            self._send(wire.complete(_tag(answer)))
            return
        rows, wanted = answer.rows, most if most > 0 else math.inf
        if answer.message and not rows.taken:
            self._send(wire.notice(answer.message))
        await self._send_rows(rows, _expand_formats(portal.formats, len(rows.schema)), wanted)
        more = most > 0 and await self._run_until_disconnect(lambda: rows.has_more)
        self._send(wire.SUSPENDED if more else wire.complete(_tag(answer)))

    # -- Writing --------------------------------------------------------------------------------------

    def _send(self, content: bytes) -> None:
        """Write content to the client. Raises ConnectionResetError if it has disconnected."""
        if self._writer.is_closing():
            raise ConnectionResetError
        self._writer.write(content)

    async def _drain(self) -> None:
        """Wait until the client has read most of its pending output.

        A stuck client is disconnected. After a reconnect, it can continue from its last epoch (SINCE).
        """
        await drain_writer(self._writer, self._limits)

    def has_secret(self, secret: int) -> bool:
        return hmac.compare_digest(str(secret), str(self.key.secret))


class Interrupted(SlicemillError):
    """Error: the client has cancelled the statement."""


def _name(subscribed: re.Match[str]) -> str:
    return subscribed[1].strip('"').replace('""', '"')


def _with_lists(text: str, oids: Sequence[int]) -> tuple[int, ...]:
    """Return the parameter types. An untyped parameter gets the list type that the statement implies."""
    lists = list_parameters(text)
    count = max([len(oids), *lists])
    known = [*oids, *[0] * (count - len(oids))]
    return tuple(oid or lists.get(number, 0) for number, oid in enumerate(known, 1))


def _formats(portal: Portal) -> tuple[int, ...]:
    columns = len(portal.answer.rows.schema) if portal.answer and portal.answer.rows is not None else 0
    return _expand_formats(portal.formats, columns)


def _expand_formats(formats: tuple[int, ...], columns: int) -> tuple[int, ...]:
    """Repeat a single format code for all columns."""
    return formats * columns if len(formats) == 1 else formats


def _close(portal: Portal) -> None:
    """Discard the rows that were not fetched."""
    if portal.answer is not None and portal.answer.rows is not None:
        portal.answer.rows.close()


def _has_ended(reader: asyncio.StreamReader) -> bool:
    """Return True if the client has closed its side of the connection, even with unread messages."""
    return bool(reader._eof) or reader.exception() is not None  # type: ignore[attr-defined]


def _cast_to_described(answer: StatementAnswer, columns: pa.Schema | None) -> StatementAnswer:
    """Cast an answer to the column types that were described to the client.

    The client decodes rows by these types.
    """
    rows = answer.rows
    if rows is None or columns is None or len(columns) != len(rows.schema):
        return answer
    described, found = describe_columns(columns), describe_columns(rows.schema)
    fields = {
        index: column.with_type(pa.string() if described[index].oid == TEXT else column.type)
        for index, column in enumerate(columns)
        if described[index].oid != found[index].oid
    }
    schema = pa.schema([fields.get(index, field) for index, field in enumerate(rows.schema)])
    return StatementAnswer(answer.tag, answer.message, rows=rows.mapped(schema, partial(_cast, fields)))


def _cast(fields: Mapping[int, pa.Field], batch: pa.RecordBatch) -> pa.RecordBatch:
    for index, column in fields.items():
        try:
            batch = batch.set_column(index, column, batch.column(index).cast(column.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise SlicemillError(
                f"column {column.name} was described as {column.type}, but has values of type "
                f"{batch.schema.field(index).type}; add a CAST to the column"
            ) from None
    return batch


def _rows(table: pa.Table, formats: Sequence[int]) -> list[tuple[bytes | None, ...]]:
    return list(zip(*encode_columns(table, formats), strict=True))


def _as_rows(rows: EpochRows, _: Epoch, __: int) -> bytes:
    return b"".join(wire.data_row(row) for row in _texts(rows))


def _as_lines(form: CopyFormat, rows: EpochRows, _: Epoch, __: int) -> bytes:
    return b"".join(wire.copy_data(form.line(row)) for row in _texts(rows))


@cache
def _lines_of(form: CopyFormat) -> Encoder:
    """Return the encoder of a COPY format, cached so that followers share encoded rows."""
    return partial(_as_lines, form)


def _header(form: CopyFormat, names: Sequence[str]) -> bytes:
    return wire.copy_data(form.line([name.encode() for name in names])) if form.header else b""


def _texts(rows: EpochRows) -> Iterable[tuple[bytes | None, ...]]:
    if TEXT_KINDS.issuperset(rows.layout.kinds):
        return zip(*encode_values(rows.columns, rows.layout.kinds), strict=True)
    return _rows(rows.table, ())


class _DirectRows:
    """Connection of a client that follows live results with SUBSCRIBE."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._transport = writer.transport

    @staticmethod
    def frame_content(content: bytes) -> bytes:
        return content

    def takes(self) -> bool:
        return self._transport.get_write_buffer_size() < _MUCH_WAITS and not self._transport.is_closing()

    def write(self, framed: bytes) -> None:
        self._transport.write(framed)


def _tag(answer: StatementAnswer) -> str:
    if answer.tag != "SELECT" or answer.rows is None:
        return answer.tag
    return f"SELECT {answer.rows.taken}"


def _error(problem: SlicemillError) -> bytes:
    if isinstance(problem, Interrupted | AdhocQueryCancelled):
        return wire.error(str(problem), "57014")
    if isinstance(problem, AdhocQueryRejected):
        return wire.error(str(problem), "53300")
    if isinstance(problem, OutOfMemory):
        return wire.error(str(problem), "53200")
    if isinstance(problem, PermissionDenied):
        return wire.error(str(problem), "42501")
    if isinstance(problem, StorageFull):
        return wire.error(str(problem), "53100")
    if isinstance(problem, EngineStopped):
        return wire.error(str(problem), "57P01")
    if not isinstance(problem, EslError):
        return wire.error(str(problem), "42000")
    first, *others = problem.diagnostics
    extra = {b"P": str(first.span.start + 1)}
    if first.hint:
        extra[b"H"] = first.hint
    if others:
        extra[b"D"] = "; ".join(diagnostic.message for diagnostic in others)
    return wire.error(first.message, "42601", extra)


# Answers to statements that clients expect every PostgreSQL server to support
#
# Settings are accepted and ignored. Transactions are accepted without effect, because every statement is
# committed separately. `system_catalog` answers queries on PostgreSQL's system catalog; an unsupported query
# returns no rows.


SERVER_VERSION = "15.0"  # version of PostgreSQL that has this protocol and these types
SETTINGS = {
    "server_version": SERVER_VERSION,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "transaction_isolation": "serializable",
    "default_transaction_isolation": "serializable",
    "application_name": "",
    "search_path": "public",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "jit": "off",
}
VERSION = f"PostgreSQL {SERVER_VERSION} (slicemill {__version__})"

_TRANSACTIONS = {
    "BEGIN": "BEGIN",
    "START": "START TRANSACTION",
    "COMMIT": "COMMIT",
    "END": "COMMIT",
    "ROLLBACK": "ROLLBACK",
    "ABORT": "ROLLBACK",
    "SAVEPOINT": "SAVEPOINT",
    "RELEASE": "RELEASE",
}
_IGNORED = {"DISCARD": "DISCARD ALL", "RESET": "RESET", "DEALLOCATE": "DEALLOCATE", "UNLISTEN": "UNLISTEN"}
_SHOW = re.compile(r"SHOW\s+(?:SESSION\s+)?(TRANSACTION\s+ISOLATION\s+LEVEL|\w+)\s*;?\s*$", re.IGNORECASE)
_FUNCTIONS: dict[str, str | None] = {
    "version": VERSION,
    "current_schema": "public",
    "current_database": "slicemill",
    "current_catalog": "slicemill",
    "current_user": "slicemill",
    "session_user": "slicemill",
}
_CALL = re.compile(
    rf"SELECT\s+(?:pg_catalog\.)?({'|'.join(_FUNCTIONS)})\s*(?:\(\s*\))?\s*(?:AS\s+(\w+))?\s*;?\s*$",
    re.IGNORECASE,
)


def answer_client_statement(
    text: str,
    words: tuple[str, str],
    relations: Callable[[], Iterable[RelationShape]],
    ask: Callable[[SystemCatalogQuery], pa.Table | None],
    values: Sequence[object] = (),
) -> StatementAnswer | None:
    """Return the answer to a PostgreSQL-specific statement, or None for any other statement.

    `relations` returns all relations that an ad hoc query can name. `values` are the values of parameters.
    `ask` executes a query on the system catalog, or returns None if the query is not supported.
    """
    first = words[0]
    if first in _TRANSACTIONS:
        return StatementAnswer(_TRANSACTIONS[first])
    if first in _IGNORED:
        return StatementAnswer(_IGNORED[first])
    if first == "SET" and words[1] != "POLICY":
        return StatementAnswer("SET")
    if first == "SHOW" and (found := _SHOW.match(text.strip())):
        name = "transaction_isolation" if " " in found[1].strip() else found[1]
        known = {setting.lower(): setting for setting in SETTINGS}.get(name.lower())
        return None if known is None else _single_value(name.lower(), SETTINGS[known], "SHOW")
    if found := _CALL.match(text.strip()):
        name = found[1].lower()
        return _single_value(found[2] or name, _FUNCTIONS[name])
    if first in ("SELECT", "WITH"):
        with report_deep_nesting(SourceText(text)):
            if reads_system_tables(text):
                found = _system_tables(text, values, list(relations()), ask)
                return StatementAnswer("SELECT", table=found)
    return None


def _single_value(name: str, value: str | None, tag: str = "SELECT") -> StatementAnswer:
    return StatementAnswer(tag, table=pa.table({name: pa.array([value], pa.string())}))


def _system_tables(
    sql: str,
    values: Sequence[object],
    relations: Sequence[RelationShape],
    ask: Callable[[SystemCatalogQuery], pa.Table | None],
) -> pa.Table:
    """Execute a query on the system catalog. The result is empty if the query is not supported."""
    shapes = {found.name: found.rows.schema for found in relations}
    views = frozenset(found.name for found in relations if found.is_view)
    found = ask(SystemCatalogQuery(sql, [infer_types(value) for value in values], shapes, views, SETTINGS))
    if found is not None:
        return found
    tree = postgres_tree(sql)
    selects = tree.selects if isinstance(tree, exp.Query) else []
    return pa.table({one.alias_or_name or "?column?": pa.array([], pa.string()) for one in selects})
