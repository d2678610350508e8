"""The service: all that a person can ask of a mill, whichever way the words came in."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from slicemill.columns.changes import table_of_now
from slicemill.columns.rows import plain_table
from slicemill.engine.changing.statements import Entry, in_force
from slicemill.engine.mill import Mill
from slicemill.engine.query import Query
from slicemill.engine.state_view import placements_in, with_measures
from slicemill.errors import SlicemillError
from slicemill.esl import EslError, SourceText
from slicemill.esl.binder import bind_script
from slicemill.esl.syntax.errors import Diagnostic
from slicemill.esl.syntax.grammar.commands import STARTS, read_command
from slicemill.esl.syntax.pieces import StatementPiece, pieces
from slicemill.esl.types.catalog import DroppedName, Setting, Statement, Table, View
from slicemill.esl.types.command import Command, Describe, Show, ShowCreate
from slicemill.explain.json import explain_json
from slicemill.explain.placements import placed_units
from slicemill.explain.statements import describe
from slicemill.explain.svg import explain_svg
from slicemill.explain.text import explain_text
from slicemill.operators.graph import QueryGraph
from slicemill.server.answer import StatementAnswer
from slicemill.server.listings import columns_of, listing, statement_of, unknown
from slicemill.server.questions import ask
from slicemill.storage.arrow_schema import as_results, with_system_columns
from slicemill.storage.log import Epoch, Log

_QUESTIONS = ("SELECT", "WITH", "(", "VALUES", "FROM")


class NotThere(SlicemillError):
    """What is asked for does not exist."""


@dataclass(frozen=True, slots=True)
class ResultPage:
    """Some results of a query; `next_epoch` is to be asked for next.

    With a `gap`, the first ones that were asked for are not retained any more.
    """

    table: pa.Table
    next_epoch: int
    gap: bool


class MillService:
    """Statements, questions and results of one mill. Methods may be called from any thread."""

    def __init__(self, mill: Mill) -> None:
        self.mill = mill
        self._changing = threading.Lock()

    def execute(
        self, text: str, by: str | None = None, interrupted: threading.Event | None = None
    ) -> list[StatementAnswer]:
        """Run the statements of a text, one after another; declarations that stand together, all or none.

        `SELECT …` is a question about what is there now. `CREATE QUERY` declares one that stays.
        """
        answers: list[StatementAnswer] = []
        for piece in _together(pieces(SourceText(text))):
            try:
                answers += self._run(piece, by, interrupted)
            except EslError as error:  # with the text as it was written
                raise EslError(piece.source, error.diagnostics) from None
        return answers

    def check(self, text: str) -> None:
        """Raise EslError with all mistakes of a text; nothing is run, none of its code."""
        source = SourceText(text)
        catalog = self.mill.catalog
        found: list[Diagnostic] = []
        for piece in _together(pieces(source)):
            if piece.words[0] in STARTS:
                read_command(piece.alone())
            elif piece.words[0] not in _QUESTIONS:
                bound = bind_script(piece.alone(), catalog, imports=False)
                catalog = bound.catalog
                found += bound.diagnostics
        if found:
            raise EslError(source, found)

    def _run(
        self, piece: StatementPiece, by: str | None, interrupted: threading.Event | None
    ) -> list[StatementAnswer]:
        first = piece.words[0]
        if first in STARTS:
            return [self._command(read_command(piece.alone()))]
        if first in _QUESTIONS:
            return [StatementAnswer("SELECT", table=ask(piece.text, self.rows_of, interrupted))]
        with self._changing:
            return [_done(statement) for statement in self.mill.execute(piece.alone(), by)]

    def _command(self, command: Command) -> StatementAnswer:
        if isinstance(command, Show):
            return StatementAnswer(f"SHOW {command.listing}", table=listing(self.mill, command.listing))
        if isinstance(command, ShowCreate):
            text = statement_of(self.mill, command.name)
            return StatementAnswer("SHOW CREATE", table=pa.table({"statement": [text]}))
        if isinstance(command, Describe):
            return StatementAnswer("DESCRIBE", table=columns_of(self.mill, command.name))
        return StatementAnswer("EXPLAIN", table=pa.table({"plan": self.explain(command.name).splitlines()}))

    def query(self, name: str) -> Query:
        """The handle of a continuous query."""
        known = self.mill.catalog.queries.get(name.lower())
        handle = self.mill.queries.get(known.name) if known is not None else None
        if handle is None:
            raise NotThere(str(unknown(self.mill, name)))
        return handle

    def graph(self, name: str | None = None) -> QueryGraph:
        """The part of the query graph that a query needs, or all of it, with what was measured."""
        graph = self.mill.graph
        if name is not None:
            graph = graph.only(graph.ancestors(self.query(name).name))
        return with_measures(graph, self.mill.home)

    def explain(self, name: str | None = None) -> str:
        """How a query runs, or how all of them do, as text."""
        graph = self.graph(name)
        units = placed_units(graph, self.mill.cells, placements_in(self.mill.home))
        return explain_text(graph, units=units)

    def explain_json(self, name: str | None = None) -> str:
        """The same for programs: nodes, arcs and units."""
        graph = self.graph(name)
        units = placed_units(graph, self.mill.cells, placements_in(self.mill.home))
        return explain_json(graph, None, units)

    def explain_svg(self, name: str | None = None) -> str:
        """The same as a drawing."""
        return explain_svg(self.graph(name))

    def statements(self) -> list[Entry]:
        """The statements in force, with who and when."""
        return list(in_force(self.mill.home.statements).values())

    def rows_of(self, name: str) -> pa.Table:
        """The rows of a relation as they are now: of a stream or query, those that are retained.

        Of results that change, these are the rows that they come to.
        """
        relation = self.mill.catalog.relation(name)
        if isinstance(relation, (Table, View)):
            return plain_table(self.mill.held(relation.name), relation.schema)
        log = self._log(name)
        found = self._read(log, log.epochs())
        known = self.mill.catalog.queries.get(name.lower()) or relation
        if known is None or not known.schema.changelog:
            return found
        if log.freed >= 0:
            raise SlicemillError(
                f"changes of {name} that nobody reads any more are gone; ask a query over it: "
                f"CREATE QUERY {name}_now AS SELECT * FROM {name}"
            )
        return table_of_now(found, known.schema)

    def results(self, name: str, since: int = 0, most_rows: int = 10_000) -> ResultPage:
        """Results of a query from epoch `since` on; whole epochs, until there are `most_rows` of them."""
        log = self.query(name).log
        chosen: list[Epoch] = []
        rows = 0
        for epoch in log.epochs(after=since - 1):
            if rows >= most_rows:
                break
            chosen.append(epoch)
            rows += epoch.rows
        next_epoch = chosen[-1].number + 1 if chosen else max(since, log.head + 1)
        return ResultPage(self._read(log, chosen), next_epoch, gap=0 < since <= log.freed)

    def _log(self, name: str) -> Log:
        found = self.mill.catalog.queries.get(name.lower()) or self.mill.catalog.relation(name)
        log = self.mill.home.logs.get(found.name) if found is not None else None
        if log is None:
            raise unknown(self.mill, name)
        return log

    def _read(self, log: Log, epochs: Sequence[Epoch]) -> pa.Table:
        empty = with_system_columns(log.columns).empty_table()
        return as_results(pa.concat_tables([empty, *(log.read(epoch) for epoch in epochs)]))


def _together(found: Iterable[StatementPiece]) -> Iterator[StatementPiece]:
    """Pieces, with declarations that follow each other as one."""
    declared: StatementPiece | None = None
    for piece in found:
        if piece.words[0] in (*STARTS, *_QUESTIONS):
            if declared is not None:
                yield declared
            declared = None
            yield piece
        else:
            declared = piece if declared is None else declared.to(piece)
    if declared is not None:
        yield declared


def _done(statement: Statement) -> StatementAnswer:
    kind, what = describe(statement)
    if isinstance(statement, DroppedName):
        return StatementAnswer(
            f"DROP {statement.kind}", f"{statement.kind.lower()} {statement.name} is dropped"
        )
    if isinstance(statement, Setting):
        return StatementAnswer("SET", f"{statement.name} is {what}")
    return StatementAnswer(f"CREATE {kind.upper()}", f"{kind} {statement.name}: {what}")
