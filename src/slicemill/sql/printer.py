"""Print syntax nodes as canonical ESL text, from which the parser creates an equal tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sqlglot import exp
from sqlglot.generator import Generator

from slicemill.sql import nodes
from slicemill.sql.nodes import IF_ABSENT, REPLACE, child


def _by_name(generator: Generator, e: exp.Expression) -> str:
    # The method is looked up here, because sqlglot looks methods up by name only for its own nodes.
    sql: str = getattr(generator, f"{type(e).__name__.lower()}_sql")(e)
    return sql


class EslGenerator(Generator):
    TRANSFORMS: ClassVar = {
        **Generator.TRANSFORMS,
        **{
            node: _by_name
            for node in vars(nodes).values()
            if isinstance(node, type) and node.__module__ == nodes.__name__
        },
    }

    def sql(self, expression: str | exp.Expr | None, key: str | None = None, comment: bool = True) -> str:
        if key is None and isinstance(expression, nodes.ExtensionNode):
            return expression.esl(self)
        return super().sql(expression, key, comment)

    # -- names, types, literals ------------------------------------------------------------------------

    def typename_sql(self, e: nodes.TypeName) -> str:
        parameters = f"({self.expressions(e, flat=True)})" if e.expressions else ""
        return f"{e.name.upper()}{parameters}{'[]' if child(e, 'list') else ''}"

    def columndeclaration_sql(self, e: nodes.ColumnDeclaration) -> str:
        parts = [self.sql(e, key) for key in ("this", "kind", "unit")]
        parts += [f"DEFAULT {self.sql(e, 'default')}"] if child(e, "default") else []
        parts += ["NOT NULL"] if child(e, "required") else []
        parts += ["PRIMARY KEY"] if child(e, "primary") else []
        return " ".join(part for part in parts if part)

    def duration_sql(self, e: nodes.Duration) -> str:
        return " ".join(self.sql(part) for part in e.expressions)

    def durationpart_sql(self, e: nodes.DurationPart) -> str:
        number = self.sql(e, "this")
        return f"{number} {self.sql(e, 'unit')}{'' if number == '1' else 'S'}"

    def interval_sql(self, e: exp.Interval) -> str:
        text = self.sql(e, "this")
        # An interval with several units or a sign is quoted.
        # An unquoted sign would apply to the whole expression.
        return f"INTERVAL '{text}'" if len(e.this.expressions) > 1 or "-" in text else f"INTERVAL {text}"

    def anonymous_sql(self, e: exp.Anonymous) -> str:
        distinct = "DISTINCT " if child(e, "distinct") else ""
        kept = f" FILTER (WHERE {self.sql(e, 'filter')})" if child(e, "filter") else ""
        return f"{self.sql(e, 'this')}({distinct}{self.expressions(e, flat=True)}){kept}"

    def cast_sql(self, e: exp.Cast, safe_prefix: str | None = None) -> str:
        return f"{safe_prefix or ''}CAST({self.sql(e, 'this')} AS {self.sql(e, 'to')})"

    def intervalrelation_sql(self, e: nodes.IntervalRelation) -> str:
        return f"{self.sql(e, 'this')} {e.args['relation']} {self.sql(e, 'expression')}"

    def regexplike_sql(self, e: exp.RegexpLike) -> str:
        return self.binary(e, "RLIKE")

    def nullsafeeq_sql(self, e: exp.NullSafeEQ) -> str:
        return self.binary(e, "<=>")

    def intdiv_sql(self, e: exp.IntDiv) -> str:
        return self.binary(e, "DIV")

    def mod_sql(self, e: exp.Mod) -> str:
        return self.binary(e, "%")

    # -- windows ---------------------------------------------------------------------------------------

    def windowfunction_sql(self, e: nodes.WindowFunction) -> str:
        partition = child(e, "partition_by")
        keys = f" PARTITION BY ({self.listing(partition)})" if partition else ""
        lengths = [
            f"{name} => {self.sql(child(e, name.lower()))}"
            for name in ("SLIDE", "STEP", "SIZE", "GAP")
            if child(e, name.lower())
        ]
        data = f"DATA => TABLE {self.sql(e, 'this')}{keys}"
        timecol = f"TIMECOL => DESCRIPTOR({self.sql(e, 'column')})"
        return f"{child(e, 'kind')}({', '.join([data, timecol, *lengths])})"

    def keysets_sql(self, e: nodes.KeySets) -> str:
        sets = ", ".join(f"({self.listing(one.expressions)})" for one in e.expressions)
        return f"GROUPING SETS ({sets})"

    def frameclause_sql(self, e: nodes.FrameClause, preceding: bool = False) -> str:
        if child(e, "kind") == "SESSION":
            return self._session(e)
        parts = [child(e, "kind"), self.sql(e, "this") or "UNBOUNDED"]
        if preceding:
            parts.append("PRECEDING")
        if child(e, "active"):
            parts.append("ACTIVE EXPIRATION")
        if child(e, "expires"):
            parts += ["EXPIRES AT", self.sql(e, "expires")]
        if child(e, "close"):
            plain = not child(e, "this") and not child(e, "expires")
            parts = ([] if plain else parts) + ["CLOSE WHEN", self.sql(e, "close")]
        return " ".join(parts) + self._slide(e)

    def _session(self, e: nodes.FrameClause) -> str:
        words = ["SESSION"]
        words += [self.sql(e, "this")] if child(e, "this") else []
        words += ["UNTIL", self.sql(e, "until")] if child(e, "until") else []
        words += ["CLOSE WHEN", self.sql(e, "close")] if child(e, "close") else []
        return " ".join(words)

    def _slide(self, e: nodes.FrameClause) -> str:
        return f" SLIDE {self.sql(e, 'slide')}" if child(e, "slide") else ""

    def _trailing(self, e: nodes.FrameClause) -> str:
        if not child(e, "this"):
            return self.frameclause_sql(e)
        rows = " ROWS" if child(e, "kind") == "ROWS" else ""
        return f"{self.sql(e, 'this')}{rows}{self._slide(e)}"

    def over_sql(self, e: nodes.Over) -> str:
        parts = []
        if child(e, "partition_by"):
            parts.append(f"PARTITION BY {self.listing(child(e, 'partition_by'))}")
        if child(e, "order"):
            parts.append(f"ORDER BY {self.sql(e, 'order')}")
        if child(e, "ranked"):
            parts.append(f"ORDER BY {self.listing(child(e, 'ranked'))}")
        if child(e, "frame"):
            parts.append(self.frameclause_sql(child(e, "frame"), preceding=True))
        return f"{self.sql(e, 'this')} OVER ({' '.join(parts)})"

    # -- queries ---------------------------------------------------------------------------------------

    def select_sql(self, e: exp.Select) -> str:
        distinct = " DISTINCT" if child(e, "distinct") else ""
        items = self.expressions(e)
        sql = f"SELECT{distinct}{self.sep()}{items}"
        entries = child(e, "entries")
        sql += f"{self.seg('FROM')} {self.sql(entries[0])}"
        for entry in entries[1:]:
            sql += self.seg(self.sql(entry)) if isinstance(entry, nodes.JoinInput) else f", {self.sql(entry)}"
        if child(e, "where"):
            sql += f"{self.seg('WHERE')} {self.sql(child(e, 'where').this)}"
        if child(e, "window"):
            sql += f"{self.seg('WINDOW')} {self._trailing(child(e, 'window'))}"
        if child(e, "group"):
            sql += f"{self.seg('GROUP BY')} {self.listing(child(e, 'group').expressions)}"
        if child(e, "having"):
            sql += f"{self.seg('HAVING')} {self.sql(child(e, 'having').this)}"
        if child(e, "qualify"):
            sql += f"{self.seg('QUALIFY')} {self.sql(child(e, 'qualify').this)}"
        return self._with(e) + sql + self._ends(e)

    def _ends(self, e: exp.Expression) -> str:
        sql = ""
        if child(e, "order"):
            sql += f"{self.seg('ORDER BY')} {self.listing(child(e, 'order').expressions)}"
        if child(e, "limit"):
            sql += f"{self.seg('LIMIT')} {self.sql(child(e, 'limit').expression)}"
        if child(e, "emit"):
            sql += f"{self.seg('EMIT')} {self.sql(e, 'emit')}"
        return sql

    def emitpart_sql(self, e: nodes.EmitPart) -> str:
        late = f"LATE {self.sql(e, 'late')}" if child(e, "late") is not None else ""
        if child(e, "kind") in ("EARLY", "LATE"):
            early = f"EARLY EVERY {self.sql(e, 'this')} " if e.this is not None else ""
            return f"{early}{late}".strip()
        return f"{child(e, 'kind')} {self.sql(e, 'this')}".strip()

    def ordered_sql(self, e: exp.Ordered) -> str:
        nulls_first = child(e, "nulls_first")
        nulls = "" if nulls_first is None else f" NULLS {'FIRST' if nulls_first else 'LAST'}"
        return f"{self.sql(e, 'this')}{' DESC' if child(e, 'desc') else ''}{nulls}"

    def union_sql(self, e: exp.Union) -> str:
        left, right = self.sql(e, "this"), self.sql(e, "expression")
        word = "UNION DISTINCT" if child(e, "distinct") else "UNION ALL"
        return f"{self._with(e)}{left}{self.seg(word)}{self.sep()}{right}{self._ends(e)}"

    def subquery_sql(self, e: exp.Subquery, sep: str = " AS ") -> str:
        del sep  # the separator is not needed, because the alias is printed with the FROM entry
        return self._with(e) + self._wrapped(e.this)

    def _with(self, e: exp.Expression) -> str:
        definitions = child(e, "with_")
        if not definitions:
            return ""
        parts = [
            f"{self.sql(child(e, 'alias').this)} AS {self._wrapped(e.this)}" for e in definitions.expressions
        ]
        return f"WITH {', '.join(parts)}{self.sep()}"

    def exists_sql(self, e: exp.Exists) -> str:
        return f"EXISTS{self._wrapped(e.this)}"

    def streaminput_sql(self, e: nodes.StreamInput) -> str:
        named = isinstance(
            e.this, exp.Identifier | nodes.TableFunctionCall | nodes.WindowFunction | nodes.ListElements
        )
        sql = self.sql(e, "this") if named else self._wrapped(e.this)
        frame, coalesce = child(e, "frame"), child(e, "coalesce")
        if coalesce:
            sql += f"({self.listing(coalesce)})"
        elif frame:
            sql += f" [{self.frameclause_sql(frame)}]"
        if child(e, "as_of"):
            sql += f" FOR SYSTEM_TIME AS OF {self.sql(e, 'as_of')}"
        if child(e, "alias"):
            sql += f" AS {self.sql(e, 'alias')}"
        if isinstance(e.this, nodes.ListElements) and child(e.this, "column"):
            sql += f"({self.sql(e.this, 'column')})"
        if coalesce:
            rows = " ROWS" if child(frame, "kind") == "ROWS" else ""
            extent = self.sql(frame, "this") or "UNBOUNDED"
            sql += f" RANGE {extent}{rows} SLIDES {self.sql(frame, 'slide')}{rows}"
            sql += " CHANGES" if child(e, "changes") else ""
            sql += f" LATE {self.sql(e, 'late')}" if child(e, "late") else ""
            if child(e, "partition_by"):
                sql += f" PARTITION BY {self.listing(child(e, 'partition_by'))}"
        return sql

    def tablefunctioncall_sql(self, e: nodes.TableFunctionCall) -> str:
        return f"TABLE({self.sql(e, 'this')})"

    def listelements_sql(self, e: nodes.ListElements) -> str:
        return f"UNNEST({self.sql(e, 'this')})"

    def joininput_sql(self, e: nodes.JoinInput) -> str:
        side = f"{child(e, 'side')} " if child(e, "side") else ""
        sql = f"{side}JOIN {self.sql(e, 'this')}"
        if child(e, "using"):
            return f"{sql} USING ({self.listing(child(e, 'using'))})"
        return f"{sql} ON {self.sql(e, 'on')}" if child(e, "on") else sql

    # -- statements ------------------------------------------------------------------------------------

    def createstream_sql(self, e: nodes.CreateStream) -> str:
        sql = f"CREATE STREAM {self.sql(e, 'this')}"
        if child(e, "query"):
            sql += f"{self._retention(e)} AS{self.sep()}{self.sql(e, 'query')}"
        else:
            sql += f" ({self.listing(child(e, 'columns'))})"
        if child(e, "order"):
            sql += f"{self.seg('ORDER BY')} {self.sql(e, 'order')}"
        for key in ("slack", "skew"):
            if child(e, key):
                sql += f"{self.seg(key.upper())} {self.sql(e, key)}"
        if begin := child(e, "begin"):
            kind = "TIMESTAMP " if isinstance(begin, exp.Literal) else ""
            sql += f"{self.seg('BEGIN')} {kind}{self.sql(begin)}"
        if child(e, "retain") and not child(e, "query"):
            sql += self.seg(self._retention(e).lstrip())
        return sql + self._source(e)

    def createtable_sql(self, e: nodes.CreateTable) -> str:
        key, refresh = child(e, "key"), child(e, "refresh")
        columns = self.listing(child(e, "columns")) + (f", PRIMARY KEY ({self.listing(key)})" if key else "")
        every = f"{self.seg('REFRESH EVERY')} {self.sql(refresh)}" if refresh else ""
        return f"CREATE TABLE {self.sql(e, 'this')} ({columns}){self._source(e)}{every}"

    def materializetable_sql(self, e: nodes.MaterializeTable) -> str:
        every = f"{self.seg('REFRESH EVERY')} {self.sql(e, 'refresh')}" if child(e, "refresh") else ""
        return f"CREATE TABLE {self.sql(e, 'this')} AS MATERIALIZED {self.sql(e, 'query')}{every}"

    def createview_sql(self, e: nodes.CreateView) -> str:
        return f"CREATE VIEW {self.sql(e, 'this')} AS{self.sep()}{self.sql(e, 'query')}"

    def createquery_sql(self, e: nodes.CreateQuery) -> str:
        options = child(e, "options")
        clause = f" WITH ({self.listing(options)})" if options else ""
        begins = child(e, "begins")
        kind = " TIMESTAMP" if isinstance(begins, exp.Literal) else ""
        clause_from = f" FROM{kind} {self.sql(begins)}" if begins else ""
        head = f"CREATE QUERY {self.sql(e, 'this')}{clause_from}{self._retention(e)}"
        return f"{head}{clause} AS{self.sep()}{self.sql(e, 'query')}"

    def _retention(self, e: exp.Expression) -> str:
        return f" RETAIN {self.sql(e, 'retain')}" if child(e, "retain") else ""

    def createfunction_sql(self, e: nodes.CreateFunction) -> str:
        head = f"CREATE FUNCTION {self.sql(e, 'this')}({self.listing(child(e, 'arguments'))})"
        external = child(e, "external") is not None
        value = f"LANGUAGE PYTHON AS {self.sql(e, 'external')}" if external else f"AS {self.sql(e, 'body')}"
        columns = child(e, "returns")
        returns = f"TABLE ({self.listing(columns)})" if isinstance(columns, list) else self.sql(columns)
        return f"{head} RETURNS {returns} {value}"

    def createalert_sql(self, e: nodes.CreateAlert) -> str:
        whom = f"ANY {child(e, 'any')}" if child(e, "any") else self.sql(e, "on")
        sql = f"CREATE ALERT {self.sql(e, 'this')} ON {whom}"
        for key, words in (("when", "WHEN"), ("held", "FOR"), ("repeat", "REPEAT EVERY")):
            if child(e, key):
                sql += f"{self.seg(words)} {self.sql(e, key)}"
        return f"{sql}{self.seg('WEBHOOK')} {self.sql(e, 'webhook')}"

    def replayerrors_sql(self, e: nodes.ReplayErrors) -> str:
        return f"REPLAY {self.sql(e, 'this')}{self._where(e)}"

    def dropobject_sql(self, e: nodes.DropObject) -> str:
        exists = "IF EXISTS " if child(e, "exists") else ""
        cascade = " CASCADE" if child(e, "cascade") else ""
        return f"DROP {child(e, 'kind')} {exists}{self.sql(e, 'this')}{cascade}"

    def createmode_sql(self, e: nodes.CreateMode) -> str:
        made = self.sql(e, "this").removeprefix("CREATE ")
        if child(e, "mode") == REPLACE:
            return f"CREATE {REPLACE} {made}"
        words = made.split(" ")
        kind = next(place for place, word in enumerate(words) if word not in ("ALGEBRAIC", "WINDOW"))
        return " ".join(("CREATE", *words[: kind + 1], IF_ABSENT, *words[kind + 1 :]))

    def changelifecycle_sql(self, e: nodes.ChangeLifecycle) -> str:
        return f"{child(e, 'action')} {child(e, 'kind')} {self.sql(e, 'this')}"

    def alterquery_sql(self, e: nodes.AlterQuery) -> str:
        return f"ALTER QUERY {self.sql(e, 'this')} SET ({self.listing(child(e, 'options'))})"

    def alterstream_sql(self, e: nodes.AlterStream) -> str:
        added = ", ".join(f"ADD COLUMN {self.sql(column)}" for column in child(e, "columns"))
        return f"ALTER STREAM {self.sql(e, 'this')} {added}"

    def setoption_sql(self, e: nodes.SetOption) -> str:
        whom = f" FOR {self.sql(e, 'component')}" if child(e, "component") else ""
        return f"SET {self.sql(e, 'this')} = {self.sql(e, 'value')}{whom}"

    def sourceclause_sql(self, e: nodes.SourceClause) -> str:
        if child(e, "url"):
            return f"SOURCE {self.sql(e, 'url')}"
        options = child(e, "options")
        clause = f" OPTIONS ({self.listing(options)})" if options else ""
        return f"USING {self.sql(e, 'format')}{clause}"

    def option_sql(self, e: nodes.Option) -> str:
        return f"{self.sql(e, 'this')} = {self.sql(e, 'value')}"

    def _source(self, e: exp.Expression) -> str:
        return self.seg(self.sql(e, "source")) if child(e, "source") else ""

    # -- aggregates ------------------------------------------------------------------------------------

    def createaggregate_sql(self, e: nodes.CreateAggregate) -> str:
        words = ["CREATE"]
        words += ["ALGEBRAIC"] if child(e, "algebraic") else []
        words += ["WINDOW"] if child(e, "window") else []
        words += ["AGGREGATE", self.sql(e, "this")]
        returns = child(e, "returns")
        kind = self.listing(returns)
        if isinstance(returns[0], nodes.ColumnDeclaration):
            kind = f"({kind})"
        head = f"{' '.join(words)}({self.listing(child(e, 'arguments'))}) : {kind}"
        if child(e, "language"):
            return f"{head} LANGUAGE PYTHON AS {self.sql(e, 'external')}"
        parts = [*child(e, "tables"), *child(e, "bodies")]
        return f"{head} {{{self._block(parts)}}}"

    def localtabledeclaration_sql(self, e: nodes.LocalTableDeclaration) -> str:
        return f"TABLE {self.sql(e, 'this')}({self.listing(child(e, 'columns'))});"

    def aggregatebody_sql(self, e: nodes.AggregateBody) -> str:
        states = " ".join(f"{state.name}:" for state in child(e, "states"))
        statements = child(e, "statements")
        return f"{states} {{{self._block(statements, end=';')}}}"

    def insertinto_sql(self, e: nodes.InsertInto) -> str:
        columns = child(e, "columns")
        target = self.sql(e, "this") + (f" ({self.listing(columns)})" if columns else "")
        into = f"INSERT {'OR REPLACE ' if child(e, 'replace') else ''}INTO {target}"
        conflict = f" {self.sql(e, 'conflict')}" if child(e, "conflict") else ""
        if child(e, "query"):
            return f"{into} {self.sql(e, 'query')}{conflict}"
        return f"{into} VALUES {self.listing(child(e, 'values'))}{self._where(e)}{conflict}"

    def onconflictclause_sql(self, e: nodes.OnConflictClause) -> str:
        columns, assignments = child(e, "columns"), child(e, "assignments")
        on = f"ON CONFLICT{f' ({self.listing(columns)})' if columns else ''} DO"
        return (
            f"{on} UPDATE SET {self.listing(assignments)}{self._where(e)}" if assignments else f"{on} NOTHING"
        )

    def truncaterows_sql(self, e: nodes.TruncateRows) -> str:
        return f"TRUNCATE TABLE {self.sql(e, 'this')}"

    def updateset_sql(self, e: nodes.UpdateSet) -> str:
        return f"UPDATE {self.sql(e, 'this')} SET {self.listing(child(e, 'assignments'))}{self._where(e)}"

    def assignment_sql(self, e: nodes.Assignment) -> str:
        return f"{self.sql(e, 'this')} = {self.sql(e, 'expression')}"

    def whileloop_sql(self, e: nodes.WhileLoop) -> str:
        return f"WHILE {self.sql(e, 'this')} {{{self._block(child(e, 'statements'), end=';')}}}"

    def deletefrom_sql(self, e: nodes.DeleteFrom) -> str:
        return f"DELETE FROM {self.sql(e, 'this')}{self._where(e)}"

    # -- helper functions ------------------------------------------------------------------------------

    def _where(self, e: exp.Expression) -> str:
        return f" WHERE {self.sql(e, 'where')}" if child(e, "where") else ""

    def _wrapped(self, e: exp.Expression) -> str:
        return f"({self.sep('')}{self.indent(self.sql(e), level=1, pad=0)}{self.seg(')', sep='')}"

    def listing(self, items: Sequence[exp.Expression]) -> str:
        return ", ".join(self.sql(item) for item in items)

    def _block(self, items: Sequence[exp.Expression], end: str = "") -> str:
        if not items:
            return " "
        lines = [self.sql(item) + end * (not isinstance(item, nodes.WhileLoop)) for item in items]
        if not self.pretty:
            return f" {' '.join(lines)} "
        body = "\n".join(lines)
        return f"\n{self.indent(body, level=1, pad=0)}\n"
