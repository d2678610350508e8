"""Session of a principal (authenticated client): checks permissions and writes the audit log.

There are four kinds of statements. Declarations change the catalog; consecutive declarations are applied all
or none. Row changes (INSERT, UPDATE, DELETE, TRUNCATE) modify tables, each statement in its own transaction.
Commands (SHOW, DESCRIBE, EXPLAIN) read the catalog. Ad hoc queries (SELECT …) are answered at once from the
stored rows. Only `CREATE QUERY` starts a continuous query.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from slicemill.adhoc.query import QueryableRelation
from slicemill.api.mill import Mill
from slicemill.binder.script import BoundScript, bind_script
from slicemill.catalog.catalog import (
    AlteredQuery,
    AlteredStream,
    Catalog,
    DerivedStream,
    DroppedName,
    QueryDefinition,
    Setting,
    Statement,
    Stream,
)
from slicemill.catalog.statements import (
    Command,
    Describe,
    ExplainReplace,
    LifecycleChange,
    Replay,
    Show,
    ShowCreate,
    ShownKind,
    ShowVersions,
)
from slicemill.errors import SlicemillError, format_count
from slicemill.explain.statements import describe
from slicemill.ingest.intake import NEXT_ARRIVAL
from slicemill.lifecycle.alerts import AlertStatus
from slicemill.lifecycle.backfill import describe_start
from slicemill.lifecycle.catalog_journal import Entry
from slicemill.lifecycle.query import Query
from slicemill.lifecycle.replace_report import ReplaceEffect
from slicemill.plan.content import quote_name
from slicemill.server.answer import StatementAnswer
from slicemill.server.auth import OWNER, PermissionDenied, Principal, UserRole
from slicemill.server.listings import alerts_table, columns_of, listing, statement_of, versions
from slicemill.server.permissions import relations_changed, relations_read_by
from slicemill.server.service import MillService, RelationShape, ResultPage
from slicemill.sql.cursor import QUERY_STARTS, StatementPiece, pieces, report_deep_nesting
from slicemill.sql.errors import Diagnostic, EslError, SourceText, TextSpan
from slicemill.sql.grammar.statements import STARTS, read_command
from slicemill.sql.grammar.tables import ROW_CHANGES
from slicemill.sql.lexer import tokenize

# Command tags of PostgreSQL, and the verbs in messages
_CHANGED = {
    "INSERT": ("INSERT 0 {}", "inserted"),
    "UPDATE": ("UPDATE {}", "updated"),
    "DELETE": ("DELETE {}", "deleted"),
    "TRUNCATE": ("TRUNCATE TABLE", "deleted"),
}
_OR_REPLACE = re.compile(r"\bOR\s+REPLACE\b", re.IGNORECASE)
# maximum bytes of an ad hoc query's result if more statements follow the query
_KEPT_BYTES = 64 << 20


@dataclass(slots=True)
class UserSession:
    """Session of a principal (authenticated client). `way` names the client interface in the audit log."""

    service: MillService
    principal: Principal = OWNER
    way: str = "python"

    def execute(
        self,
        text: str,
        interrupted: threading.Event | None = None,
        parameters: Sequence[object] = (),
    ) -> list[StatementAnswer]:
        """Run the statements of a text in order. Ad hoc queries may use `parameters` for $1, $2, …"""
        answers: list[StatementAnswer] = []
        for piece in _merge_declarations(pieces(SourceText(text))):
            for answer in answers[-1:]:
                answer.keep(_KEPT_BYTES)
            try:
                with report_deep_nesting(piece.alone()):
                    answers += self._run(piece, interrupted, parameters)
            except EslError as error:  # the error refers to the original text
                raise EslError(piece.source, error.diagnostics) from None
        return answers

    def _answer_adhoc_query(
        self, sql: str, values: Sequence[object], interrupted: threading.Event | None
    ) -> StatementAnswer:
        """Answer an ad hoc query, with a notice if stream rows are no longer retained."""
        named: dict[str, QueryableRelation] = {}

        def relation_of(name: str) -> QueryableRelation:
            named[name] = self.relation(name)
            return named[name]

        user = self.principal.name or ""
        rows = self.service.adhoc_queries.ask(sql, relation_of, user, values, interrupted)
        return StatementAnswer("SELECT", missing_rows_notice(self.service.mill, named), rows=rows)

    def check(self, text: str) -> None:
        """Raise EslError with all errors of a text, without running its statements or code."""
        source = SourceText(text)
        catalog = self.service.mill.catalog
        found: list[Diagnostic] = []
        for piece in _merge_declarations(pieces(source)):
            if piece.words[0] in STARTS:
                read_command(piece.alone())
            elif piece.words[0] not in QUERY_STARTS:
                bound = bind_script(piece.alone(), catalog, imports=False)
                catalog = bound.catalog
                found += bound.diagnostics
                self._require_names(bound)
        if found:
            self._require_names_in(text)
            raise EslError(source, found)

    def _run(
        self, piece: StatementPiece, interrupted: threading.Event | None, parameters: Sequence[object]
    ) -> list[StatementAnswer]:
        first = piece.words[0]
        if first in STARTS:
            return [self._command(read_command(piece.alone()))]
        if first in QUERY_STARTS:
            values = [infer_types(value) for value in parameters]
            return [self._answer_adhoc_query(piece.alone().text, values, interrupted)]
        if first in ROW_CHANGES:
            return [self._change_rows(piece, parameters)]
        if parameters:
            raise SlicemillError(
                "only SELECT, INSERT, UPDATE and DELETE can have parameters; "
                "write the values into the statement"
            )
        effects = self._replace_effects(piece)
        done, warning = self._declare(piece)
        return [self._answer_declaration(statement, effects, warning) for statement in done]

    def _replace_effects(self, piece: StatementPiece) -> list[ReplaceEffect]:
        """Return the effects of statements with OR REPLACE. Errors are reported when the statements run."""
        if not _OR_REPLACE.search(piece.text):
            return []
        with suppress(SlicemillError):
            self._check_allowed(piece)
            return self.service.mill.statements.explain_replace(piece.alone())
        return []

    def _answer_declaration(
        self, statement: Statement, effects: Sequence[ReplaceEffect], warning: str
    ) -> StatementAnswer:
        done = _statement_answer(statement)
        own = [f"{one.name} {one.effect}: {one.what}" for one in effects if one.name == statement.name]
        others = [f"{one.name} {one.effect}: {one.what}" for one in effects if one.name != statement.name]
        message = done.message + start_of(self.service.mill, statement)
        if own:
            message = "\n".join([done.message, *own, *others])
        return StatementAnswer(done.tag, message, warning=warning)

    def _change_rows(self, piece: StatementPiece, parameters: Sequence[object]) -> StatementAnswer:
        source = with_values(piece, parameters) if parameters else piece.alone()
        with self._audit_statement(piece) as warnings:
            self.principal.require(UserRole.OPERATOR, "changing rows of tables")
            if self.principal.names:
                bound = bind_script(source, self.service.mill.catalog, imports=False)
                if bound.diagnostics:
                    self._require_names_in(source.text)
                    raise EslError(source, bound.diagnostics)
                self._require_names(bound)
            count = self.service.change_rows(source, self.principal.name)
        tag, done = _CHANGED[piece.words[0]]
        return StatementAnswer(
            tag.format(count), f"{format_count(count, 'row')} {done}", warning="; ".join(warnings)
        )

    def _declare(self, piece: StatementPiece) -> tuple[list[Statement], str]:
        """Run declarations. Return the declared statements and a warning."""
        with self._audit_statement(piece) as warnings:
            self.principal.require(UserRole.OPERATOR, "declaring or dropping objects")
            self._check_allowed(piece)
            done = self.service.declare(piece.alone(), self.principal.name)
        return done, "; ".join(warnings)

    @contextmanager
    def _audit_statement(self, piece: StatementPiece) -> Iterator[list[str]]:
        """Write a statement and its outcome to the audit log.

        Yields a list, to which warnings are added.
        """
        outcome, warnings = "refused", list[str]()
        try:
            yield warnings
            outcome = "done"
        except PermissionDenied:
            outcome = "denied"
            raise
        finally:
            warning = self.service.audit.note(self.principal.name, self.way, piece.text, outcome)
            if warning is not None:
                warnings.append(warning)

    def _check_allowed(self, piece: StatementPiece) -> None:
        """Check permissions before a statement runs code or opens files."""
        allowed = self.service.allowed
        if allowed is None and not self.principal.names:
            return
        bound = bind_script(piece.alone(), self.service.mill.catalog, imports=False)
        if bound.diagnostics:
            self._require_names_in(piece.text)
            raise EslError(piece.source, bound.diagnostics)
        statements = [statement for statement, _ in bound.statements]
        if allowed is not None:
            allowed.check(statements, self.service.mill.running.folder, self.service.mill.home.folder)
        self._require_names(bound)

    def _require_names(self, bound: BoundScript) -> None:
        """Raise PermissionDenied if statements use names that the principal may not use."""
        if not self.principal.names:
            return
        for name in names_used((statement for statement, _ in bound.statements), bound.catalog):
            self._require_relation(name, bound.catalog)
        for change, _ in bound.changes:
            for name in (change.table, *sorted(relations_changed(change, bound.catalog))):
                self._require_relation(name, bound.catalog)

    def _require_relation(self, name: str, catalog: Catalog) -> None:
        """Raise PermissionDenied unless the principal may name a relation.

        Late and bad rows belong to their stream.
        """
        self.principal.require_name(name)
        owner = catalog.owner_of(name)
        if owner is not None:
            self.principal.require_name(owner.name)

    def _require_names_in(self, text: str) -> None:
        """Check the names in a text before its errors are reported.

        The messages could otherwise reveal columns of other principals' relations.
        """
        catalog = self.service.mill.catalog
        for known in (*catalog.relations.values(), *catalog.queries.values()):
            if re.search(rf"(?<!\w){re.escape(known.name)}(?!\w)", text, re.IGNORECASE):
                self.principal.require_name(known.name)

    def _command(self, command: Command) -> StatementAnswer:
        mill = self.service.mill
        if isinstance(command, Show) and command.listing is ShownKind.ALERTS:
            return StatementAnswer("SHOW ALERTS", table=alerts_table(self.alerts()))
        if isinstance(command, Show):
            return StatementAnswer(
                f"SHOW {command.listing}", table=self._visible(listing(mill, command.listing))
            )
        if isinstance(command, ShowCreate):
            self.principal.require_name(command.name)
            text = statement_of(mill, command.name, command.kind)
            return StatementAnswer("SHOW CREATE", table=pa.table({"statement": [text]}))
        if isinstance(command, ShowVersions):
            self.principal.require_name(command.name)
            return StatementAnswer("SHOW VERSIONS", table=versions(mill, command.name))
        if isinstance(command, ExplainReplace):
            return self._explain_replace(command)
        if isinstance(command, Describe):
            self._require_relation(command.name, mill.catalog)
            return StatementAnswer("DESCRIBE", table=columns_of(mill, command.name))
        return StatementAnswer("EXPLAIN", table=pa.table({"plan": self.explain(command.name).splitlines()}))

    def alerts(self) -> list[AlertStatus]:
        """Return the alerts that the principal may see. Both the alert and its object must match."""
        may = self.principal.may_name
        return [one for one in self.service.mill.alerts.status() if may(one.name) and may(one.on)]

    def check_trial(self, text: str) -> None:
        """Raise PermissionDenied unless the principal may declare the statements.

        A trial run opens files and runs code, like a declaration.
        """
        self.principal.require(UserRole.OPERATOR, "measuring a new query")
        self._check_allowed(StatementPiece(SourceText(text), TextSpan(0, len(text)), ("", "")))

    def _explain_replace(self, command: ExplainReplace) -> StatementAnswer:
        source = SourceText(command.statement)
        self._check_allowed(StatementPiece(source, TextSpan(0, len(command.statement)), ("", "")))
        effects = self.service.mill.statements.explain_replace(source)
        columns = [[getattr(one, name) for one in effects] for name in ("name", "effect", "what")]
        table = pa.table(dict(zip(("name", "effect", "what"), columns, strict=True)))
        return StatementAnswer("EXPLAIN REPLACE", table=table)

    def _visible(self, table: pa.Table) -> pa.Table:
        """Return the rows of a listing with names that the principal may see."""
        if not self.principal.names:
            return table
        seen = [self.principal.may_name(name) for name in table.column("name").to_pylist()]
        return table.filter(pa.array(seen, pa.bool_()))

    def query(self, name: str) -> Query:
        """Return the handle of a continuous query."""
        self.principal.require_name(name)
        return self.service.query(name)

    def queries(self) -> list[str]:
        """Return the names of the queries that the principal may see, in lower case."""
        return sorted(name for name in self.service.mill.catalog.queries if self.principal.may_name(name))

    def results(self, name: str, since: int = 0, most_rows: int = 10_000) -> ResultPage:
        self.principal.require_name(name)
        return self.service.results(name, since, most_rows)

    def relation(self, name: str) -> QueryableRelation:
        """Return the relation that an ad hoc query reads under a name."""
        self._require_relation(name, self.service.mill.catalog)
        return self.service.relation(name)

    def relations(self) -> Iterator[RelationShape]:
        """Yield the relations that the principal's ad hoc queries can name."""
        return (found for found in self.service.relations() if self.principal.may_name(found.name))

    def statements(self) -> list[Entry]:
        """Return the statements in force that the principal may see."""
        return [entry for entry in self.service.statements() if self.principal.may_name(entry["name"])]

    def explain(self, name: str | None = None, form: str = "text") -> str:
        """Return the execution plan of one or all queries in a format."""
        self.require_all_names(name)
        return self.service.explain(name, form)

    def require_all_names(self, name: str | None) -> None:
        """Raise PermissionDenied unless the principal may see a query, or all queries if no name is given.

        Without a name, the principal must be allowed to see all queries.
        """
        if name is not None:
            self.principal.require_name(name)
        elif self.principal.names:
            raise PermissionDenied(f"{self.principal.name} may only see some names; name one query")

    def metrics(self) -> dict[str, Any]:
        """Return all metrics of the mill."""
        self.require_all_names(None)
        return self.service.mill.metrics()


def names_used(statements: Iterable[Statement], catalog: Catalog) -> Iterator[str]:
    """Yield the names that statements declare, drop or read."""
    for statement in statements:
        # A scheduling policy that applies to all queries requires access to all names.
        yield statement.component or "*" if isinstance(statement, Setting) else statement.name
        yield from relations_read_by(statement, catalog)


def _merge_declarations(found: Iterable[StatementPiece]) -> Iterator[StatementPiece]:
    """Merge consecutive declarations into one piece."""
    declared: StatementPiece | None = None
    for piece in found:
        if piece.words[0] in (*STARTS, *QUERY_STARTS, *ROW_CHANGES):
            if declared is not None:
                yield declared
            declared = None
            yield piece
        else:
            declared = piece if declared is None else declared.to(piece)
    if declared is not None:
        yield declared


def _statement_answer(statement: Statement) -> StatementAnswer:
    kind, what = describe(statement)
    if isinstance(statement, DroppedName):
        dropped = f"{statement.kind.lower()} {statement.name} is dropped"
        return StatementAnswer(f"DROP {statement.kind}", dropped)
    if isinstance(statement, AlteredQuery):
        return StatementAnswer("ALTER QUERY", f"query {statement.name}: {what}")
    if isinstance(statement, AlteredStream):
        return StatementAnswer("ALTER STREAM", f"stream {statement.name}: {what}")
    if isinstance(statement, LifecycleChange):
        return StatementAnswer(f"{statement.action} {statement.kind}", statement.outcome)
    if isinstance(statement, Replay):
        return StatementAnswer("REPLAY", what)
    if isinstance(statement, Setting):
        return StatementAnswer("SET", f"{statement.name} is {what}")
    return StatementAnswer(f"CREATE {kind.upper()}", f"{kind} {statement.name}: {what}")


# Parameters of statements: values replace $1, $2, …


_PARAMETER = re.compile(r"\$(\d+)")


class UntypedText(str):
    """Parameter that the client sent as text without a type."""

    __slots__ = ()


_INTEGER = re.compile(r"[+-]?\d{1,38}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def infer_types(value: object) -> object:
    """Convert untyped parameters of an ad hoc query to numbers, if that loses no digits.

    >>> infer_types(UntypedText("12")), infer_types(UntypedText("0.5")), infer_types(UntypedText("infinity"))
    (12, 0.5, 'infinity')
    >>> infer_types(UntypedText("12345678901234567890.5"))
    Decimal('12345678901234567890.5')
    >>> infer_types([UntypedText("1"), None]), infer_types([UntypedText("1"), UntypedText("a")])
    ([1, None], ['1', 'a'])
    """
    if isinstance(value, list):
        found = [infer_types(element) for element in value]
        kinds = {type(element) for element in found if element is not None}
        # All elements of a list must have the same type.
        return found if len(kinds) < 2 else [None if one is None else str(one) for one in value]
    if not isinstance(value, UntypedText):
        return value
    if _INTEGER.fullmatch(value):
        return int(value)
    if _NUMBER.fullmatch(value):
        number, exact = float(value), Decimal(value)
        return exact if Decimal(repr(number)) != exact and len(exact.as_tuple().digits) <= 38 else number
    return str(value)


def with_values(piece: StatementPiece, values: Sequence[object]) -> SourceText:
    """Replace the parameters of a statement by literals. Quotes in texts are doubled."""
    text = piece.text
    parts: list[str] = []
    end = 0
    for token in tokenize(text):
        if found := _PARAMETER.fullmatch(text[token.start : token.end + 1]):
            number = int(found[1])
            if not 1 <= number <= len(values):
                raise SlicemillError(
                    f"${number} has no value; the client has sent {len(values)} parameter values"
                )
            parts += [text[end : token.start], constant(values[number - 1])]
            end = token.end + 1
    return SourceText("".join([*parts, text[end:]]), piece.source.name)


def constant(value: object) -> str:
    """Return a value as an SQL literal.

    >>> constant("it's"), constant(None), constant(True), constant(-3), constant(b"a")
    ("'it''s'", 'NULL', 'TRUE', '-3', "unhex('61')")
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, Decimal)):
        return f"{value:f}" if isinstance(value, Decimal) else str(value)
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return f"TIMESTAMP '{moment.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, timedelta):
        us = value // timedelta(microseconds=1)
        return f"{'-' if us < 0 else ''}INTERVAL {abs(us)} MICROSECONDS"
    if isinstance(value, (bytes, memoryview)):
        return f"unhex('{value.hex()}')"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(constant, value))}]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    raise SlicemillError(f"a parameter of type {type(value).__name__} is not supported here")


# Notices about rows that an ad hoc query could not read, and about the start of a new query


def missing_rows_notice(mill: Mill, names: Iterable[str]) -> str:
    """Return which rows an ad hoc query missed because they are no longer retained."""
    return "; ".join(notice for name in names for notice in _missing_rows(mill, name))


def start_of(mill: Mill, statement: object) -> str:
    """Return where a new query starts: its first row and its first complete window.

    The text is empty for statements that declare no query or stream.
    """
    if isinstance(statement, Stream):
        where = (
            "with its first row"
            if statement.starts_early
            else "with the rows that arrive after their creation"
        )
        return f"; queries start {where}"
    if isinstance(statement, (QueryDefinition, DerivedStream)):
        words = describe_start(mill.dispatcher.running, mill.running.plan.graph, statement.name)
        return f"; {words}" if words else ""
    return ""


def _missing_rows(mill: Mill, name: str) -> Iterator[str]:
    known = mill.catalog.queries.get(name.lower()) or mill.catalog.relation(name)
    if not isinstance(known, (Stream, DerivedStream, QueryDefinition)) or known.schema.changelog:
        return
    log = mill.home.logs.get(known.name)
    if isinstance(known, Stream):
        owner = mill.catalog.declared_stream(known.name)
        keep = f"declare {quote_name(owner.name)} with RETAIN, as in RETAIN 7 DAYS, to keep more"
        if log is None:
            yield f"no query reads {known.name}, so none of its rows are stored; create one, or {keep}"
            return
        read = int(mill.home.streams.get(owner.name, {}).get(NEXT_ARRIVAL, 0))
        if known.name == owner.name and log.rows < read:
            yield (
                f"{known.name} stores {log.rows:,} of the {read:,} rows that were read: those that queries "
                f"have not read yet; {keep}"
            )
        elif known.name != owner.name and log.freed >= 0:
            yield f"older rows of {known.name} are no longer stored; {keep}"
    elif log is not None and log.freed >= 0:
        kind = "query" if isinstance(known, QueryDefinition) else "stream"
        yield (
            f"older rows of {known.name} are no longer stored; "
            f"declare the {kind} with RETAIN, as in RETAIN 7 DAYS, to keep more"
        )
