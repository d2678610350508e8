"""Parser of SELECT, FROM, joins, UNION and WITH."""

from __future__ import annotations

from sqlglot import exp

from slicemill.sql import nodes
from slicemill.sql.cursor import Cursor
from slicemill.sql.errors import StatementError, TextSpan
from slicemill.sql.grammar import expressions, windows
from slicemill.sql.grammar import foreign_keywords as foreign
from slicemill.sql.grammar import windows as over
from slicemill.sql.grammar import windows as window_functions
from slicemill.sql.lexer import NOT_AN_ALIAS, RESERVED
from slicemill.sql.nodes import at, child, span_of

CLAUSES = {
    "FROM": "FROM",
    "WHERE": "WHERE",
    "WINDOW": "WINDOW",
    "GROUP": "GROUP BY",
    "HAVING": "HAVING",
    "QUALIFY": "QUALIFY",
    "ORDER": "ORDER BY",
    "LIMIT": "LIMIT",
    "EMIT": "EMIT",
}
_CLAUSE_ORDER = f"clauses stand in this order: {', '.join(CLAUSES.values())}"


def query(c: Cursor) -> exp.Expression:
    """Parse `[WITH …] SELECT … [UNION [ALL | DISTINCT] SELECT …] [ORDER BY …] [LIMIT …] [EMIT …]`."""
    start = c.span()
    definitions: list[exp.Expression] = []
    if c.accept("WITH"):
        definitions = c.listing(lambda: _definition(c))
    node = _select_or_parenthesis(c)
    while c.looking_at("UNION"):
        _warn_of_ends(c, node)
        union = c.span()
        c.expect("UNION")
        distinct = c.accept("DISTINCT")
        if not distinct and not c.take("ALL"):
            c.warn(
                "UNION keeps equal rows, as UNION ALL does",
                union,
                "write UNION ALL; or UNION DISTINCT, which drops equal rows",
            )
        right = _select_or_parenthesis(c)
        node = at(exp.Union(this=node, expression=right, distinct=distinct), c.span_from(start))
        if isinstance(right, exp.Select):
            _move_ends(right, node)
        else:
            _ends(c, node)
            foreign.refuse(c, foreign.BEHIND_A_SELECT)
    if definitions:
        node.set("with_", exp.With(expressions=definitions))
    return node


_ENDS = {"order": "ORDER BY", "limit": "LIMIT", "emit": "EMIT"}


def _ends(c: Cursor, node: exp.Expression) -> None:
    """Parse `[ORDER BY …] [LIMIT n] [EMIT …]` at the end of a query."""
    if c.accept("ORDER", "BY"):
        node.set("order", exp.Order(expressions=c.listing(lambda: expressions.sort_key(c))))
    if c.accept("LIMIT"):
        limit = c.span()
        node.set("limit", at(exp.Limit(expression=c.count()), limit))
    if c.looking_at("EMIT"):
        node.set("emit", _emit(c))


def _move_ends(last: exp.Select, union: exp.Union) -> None:
    """Move ORDER BY, LIMIT and EMIT from the last SELECT to the whole UNION, as in SQL."""
    for key in _ENDS:
        union.set(key, child(last, key))
        last.set(key, None)


def _warn_of_ends(c: Cursor, node: exp.Expression) -> None:
    """Warn of ORDER BY, LIMIT or EMIT before UNION.

    In SQL such a SELECT needs parentheses.
    """
    for key, words in _ENDS.items():
        clause = child(node, key)
        if clause is not None:
            c.warn(
                f"this {words} applies to what stands before the UNION",
                span_of(clause),
                "put that in parentheses: (SELECT …) UNION ALL SELECT …",
            )


def _definition(c: Cursor) -> exp.Expression:
    name = c.name("a name")
    c.expect("AS")
    c.expect("(")
    inner = c.parse_nested(lambda: query(c))
    c.expect(")")
    return exp.CTE(this=inner, alias=exp.TableAlias(this=name))


def _select_or_parenthesis(c: Cursor) -> exp.Expression:
    start = c.span()
    if c.accept("("):
        inner = c.parse_nested(lambda: query(c))
        c.expect(")")
        foreign.refuse(c, foreign.BEHIND_A_SELECT)
        return at(exp.Subquery(this=inner), c.span_from(start))
    return select(c)


def select(c: Cursor) -> exp.Select:
    start = c.span()
    c.expect("SELECT")
    node = exp.Select()
    if c.looking_at("DISTINCT", "ON", "("):
        raise StatementError(
            "DISTINCT is about whole rows",
            c.span(),
            "for one row of each k, write QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC) = 1",
        )
    if c.take("DISTINCT"):
        node.set("distinct", exp.Distinct())
    else:
        c.take("ALL")
    if c.looking_at("FROM"):
        c.fail("say what to select: columns, or * for all of them")
    node.set("expressions", c.listing(lambda: _item(c)))
    if not c.accept("FROM"):
        c.fail(_CLAUSE_ORDER if c.word() in CLAUSES else "")
    entries: list[exp.Expression] = [_from_entry(c)]
    while True:
        if c.comma():
            entries.append(_from_entry(c))
        elif c.word() in STARTS:
            entries.append(_join(c))
        elif c.looking_at("LATERAL", "VIEW"):
            entries.append(_lateral_view(c))
        else:
            c.note("JOIN")
            break
    node.set("entries", entries)
    named = _window_clauses(c, node) if window_functions.at_window_clause(c) else []
    if c.accept("WHERE"):
        node.set("where", exp.Where(this=expressions.expression(c)))
    named += _window_clauses(c, node)
    if c.accept("GROUP", "BY"):
        node.set("group", _group_by(c))
        windows.closing(c, entries)
    if c.accept("HAVING"):
        node.set("having", exp.Having(this=expressions.expression(c)))
    named += _window_clauses(c, node)
    if c.accept("QUALIFY"):
        node.set("qualify", exp.Qualify(this=expressions.expression(c)))
    named += _window_clauses(c, node)
    _ends(c, node)
    over.put_windows(node, named)
    if c.word() in CLAUSES:
        c.fail(_CLAUSE_ORDER)
    foreign.refuse(c, foreign.BEHIND_A_SELECT)
    return at(node, c.span_from(start))


def _window_clauses(c: Cursor, node: exp.Select) -> list[nodes.NamedWindow]:
    """Parse WINDOW clauses, and return the named windows.

    The forms are `WINDOW 5 MINUTES` for all streams, `WINDOW w AS (…)`, and ksqlDB's window of one stream.
    """
    named: list[nodes.NamedWindow] = []
    while c.looking_at("WINDOW"):
        if over.names_windows(c):
            named += over.named_windows(c)
        elif window_functions.at_window_clause(c):
            start = c.span()
            frame = window_functions.window_clause(c)
            first, *others = node.args["entries"]
            if others or first.args.get("frame") is not None:
                raise StatementError(
                    "this is the window of one stream",
                    c.span_from(start),
                    "give each stream its own: FROM a [RANGE 1 HOUR] AS a JOIN b [RANGE 1 HOUR] AS b ON …",
                )
            first.set("frame", frame)
        elif node.args.get("window") is None:
            node.set("window", windows.trailing(c))
        else:
            break
    return named


def _emit(c: Cursor) -> nodes.EmitPart:
    start = c.span()
    c.expect("EMIT")
    kind = c.accept_any(("CHANGES", "FINAL", "EVERY", "EARLY", "LATE", "ON WINDOW CLOSE"))
    if not kind:
        c.fail(
            "say when changes are told: EMIT CHANGES, EMIT FINAL, or EMIT EVERY 1 MINUTE; "
            "of windows EMIT EARLY EVERY 1 MINUTE LATE 5 MINUTES"
        )
    if kind == "EARLY":
        c.expect("EVERY")
    every = windows.duration(c) if kind in ("EVERY", "EARLY") else None
    late = windows.duration(c) if kind == "LATE" or (kind == "EARLY" and c.accept("LATE")) else None
    return at(nodes.EmitPart(kind=kind, this=every, late=late), c.span_from(start))


def _item(c: Cursor) -> exp.Expression:
    start = c.span()
    if c.take("*"):
        if c.word() in ("EXCEPT", "EXCLUDE", "REPLACE") and c.word(1) == "(":
            raise StatementError(
                f"* has no {c.word()}", c.span(), "name the columns that you want: SELECT a, b"
            )
        return at(exp.Star(), start)
    node = expressions.expression(c)
    if c.accept("AS"):
        alias = c.name("a name")
        if isinstance(node, exp.Anonymous) and c.looking_at("OVER"):
            # Published ESL has an alias after the whole call, so the alias is accepted with a warning.
            c.warn("a name stands behind the whole call", span_of(alias), f"write OVER (…) AS {alias.name}")
            c.advance()
            node = at(over.over(c, node), c.span_from(start))
        return at(exp.Alias(this=node, alias=alias), c.span_from(start))
    if c.at_name(barred=NOT_AN_ALIAS):
        return at(exp.Alias(this=node, alias=c.name("a name")), c.span_from(start))
    return node


def _group_by(c: Cursor) -> exp.Group:
    start = c.span()
    keys = c.listing(lambda: _group(c))
    if c.word() == "WITH" and c.word(1) in ("ROLLUP", "CUBE"):
        c.advance()
        keys = [at(exp.Anonymous(this=c.advance().text, expressions=keys), c.span_from(start))]
    return exp.Group(expressions=keys)


def _group(c: Cursor) -> exp.Expression:
    start = c.span()
    if c.looking_at("ALL"):
        raise StatementError("say what to group by", start, "name columns, or count them: GROUP BY 1, 2")
    if not (c.looking_at("GROUPING", "SETS", "(")):
        return expressions.expression(c)
    c.expect("GROUPING", "SETS", "(")
    sets = c.listing(lambda: _grouping_set(c))
    c.expect(")")
    return at(nodes.KeySets(expressions=sets), c.span_from(start))


def _grouping_set(c: Cursor) -> exp.Expression:
    """Parse a grouping set: `(a, b)`, `()`, or one expression."""
    start = c.span()
    if not c.take("("):
        return at(exp.Tuple(expressions=[expressions.expression(c)]), c.span_from(start))
    inside = [] if c.looking_at(")") else c.listing(lambda: expressions.expression(c))
    c.expect(")")
    return at(exp.Tuple(expressions=inside), c.span_from(start))


def _from_entry(c: Cursor) -> nodes.StreamInput:
    start = c.span()
    this: exp.Expression
    coalesce = None
    if c.looking_at("LATERAL"):
        c.advance()  # LATERAL is optional, because an entry may always read the entries before it
    if c.looking_at("UNNEST", "("):
        c.advance()
        this = _elements(c, start)
    elif c.accept("("):
        this = c.parse_nested(lambda: query(c))
        c.expect(")")
    elif window_functions.at_window_function(c):
        this = window_functions.window_function(c)
    elif c.looking_at("TABLE", "(") and c.word(3) == "(":
        this = _table_call(c)
    else:
        this = c.name("a stream or table")
        if c.looking_at("."):
            raise StatementError(
                "a stream's name has no dots", c.span(), "write the name alone, or in double quotes"
            )
        if c.take("("):
            coalesce = c.listing(lambda: c.name("an attribute to coalesce on"))
            c.expect(")")
    if c.word(1) == "(":
        foreign.refuse(c, foreign.BEHIND_A_STREAM)
    frame = windows.bracket(c) if c.looking_at("[") else None
    as_of = as_of_clause(c)
    alias = None
    if c.accept("AS"):
        alias = c.name("an alias", RESERVED)
    elif c.at_name(barred=NOT_AN_ALIAS):
        alias = c.name("an alias", NOT_AN_ALIAS)
    if isinstance(this, nodes.ListElements) and alias is not None and c.take("("):
        this.set("column", c.name("a column"))
        c.expect(")")
    if frame is None and c.looking_at("["):
        frame = windows.bracket(c)
    partition, changes, late = None, None, None
    if coalesce is not None:
        frame = windows.temporal(c)
        changes_at = c.span()
        changes = at(exp.Var(this="CHANGES"), changes_at) if c.accept("CHANGES") else None
        late = windows.lateness(c)
        partition = windows.partition_by(c)
    node = nodes.StreamInput(this=this, alias=alias, frame=frame, coalesce=coalesce, partition_by=partition)
    node.set("changes", changes)
    node.set("as_of", as_of)
    node.set("late", late)
    return at(node, c.span_from(start))


def _elements(c: Cursor, start: TextSpan) -> nodes.ListElements:
    c.expect("(")
    node = nodes.ListElements(this=expressions.expression(c))
    c.expect(")")
    return at(node, c.span_from(start))


def _lateral_view(c: Cursor) -> nodes.JoinInput:
    """Parse `LATERAL VIEW [OUTER] explode(list) t AS column`."""
    start = c.span()
    c.expect("LATERAL", "VIEW")
    outer = c.accept("OUTER")
    called = c.span()
    function = c.plain_word("explode")
    if function not in ("EXPLODE", "EXPLODE_OUTER"):
        raise StatementError(
            "a LATERAL VIEW has the elements of a list", called, "write LATERAL VIEW explode(list) t AS x"
        )
    elements = _elements(c, called)
    alias = c.name("a name for the rows", NOT_AN_ALIAS)
    elements.set("column", c.name("a column") if c.accept("AS") else None)
    entry = at(nodes.StreamInput(this=elements, alias=alias), c.span_from(called))
    node = nodes.JoinInput(this=entry, side="CROSS")
    if outer or function == "EXPLODE_OUTER":
        node = nodes.JoinInput(this=entry, side="LEFT", on=at(exp.Boolean(this=True), start))
    return at(node, c.span_from(start))


def _table_call(c: Cursor) -> nodes.TableFunctionCall:
    start = c.span()
    c.expect("TABLE")
    c.expect("(")
    called_at = c.span()
    call = expressions.expression(c)
    if not isinstance(call, exp.Anonymous):
        raise StatementError("TABLE takes the call of a function", called_at, "as in TABLE(f(x)) AS t")
    c.expect(")")
    return at(nodes.TableFunctionCall(this=call), c.span_from(start))


def _join(c: Cursor) -> nodes.JoinInput:
    start = c.span()
    side = kind(c)
    entry = _from_entry(c)
    condition, using = join_condition(c, side)
    return at(nodes.JoinInput(this=entry, side=side, on=condition, using=using), c.span_from(start))


# JOIN: its kind, and its ON or USING condition


# Keywords with which a join begins.
STARTS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "ASOF", "NATURAL")

# Spellings of the kinds of joins. An ASOF join matches only the latest row of the other side.
_KINDS = {
    "INNER": "INNER",
    "CROSS": "CROSS",
    "LEFT SEMI": "SEMI",
    "LEFT ANTI": "ANTI",
    "LEFT ASOF": "LEFT ASOF",
    "LEFT OUTER": "LEFT",
    "LEFT": "LEFT",
    "RIGHT OUTER": "RIGHT",
    "RIGHT": "RIGHT",
    "FULL OUTER": "FULL",
    "FULL": "FULL",
    "SEMI": "SEMI",
    "ANTI": "ANTI",
    "ASOF LEFT OUTER": "LEFT ASOF",
    "ASOF LEFT": "LEFT ASOF",
    "ASOF INNER": "ASOF",
    "ASOF": "ASOF",
}


def kind(c: Cursor) -> str | None:
    """Parse the kind of a join and the word JOIN.

    Return None for INNER.
    """
    if c.looking_at("NATURAL"):
        raise StatementError(
            "a NATURAL JOIN changes its meaning when a column is added",
            c.span(),
            "name the columns: JOIN … USING (k)",
        )
    found = _KINDS[written] if (written := c.accept_any(tuple(_KINDS))) else "INNER"
    c.expect("JOIN")
    return None if found == "INNER" else found


def as_of_clause(c: Cursor) -> exp.Expression | None:
    """Parse `FOR SYSTEM_TIME AS OF a.ts` after the name of a relation."""
    if not c.take("FOR"):
        return None
    if not c.accept("SYSTEM_TIME", "AS", "OF"):
        c.fail("write FOR SYSTEM_TIME AS OF stream.timestamp")
    return expressions.expression(c)


def join_condition(c: Cursor, kind_: str | None) -> tuple[exp.Expression | None, list[exp.Identifier] | None]:
    """Parse `ON condition` or `USING (k, …)`.

    A CROSS JOIN has neither of them.
    """
    if kind_ == "CROSS":
        return None, None
    if c.accept("USING"):
        c.expect("(")
        names = c.listing(lambda: c.name("a column of both sides"))
        c.expect(")")
        return None, names
    if c.looking_at("WITHIN"):
        raise StatementError(
            "each stream of a join says how long it is kept",
            c.span(),
            "give both a window: FROM a [RANGE 1 HOUR] AS a JOIN b [RANGE 1 HOUR] AS b ON a.k = b.k",
        )
    if not c.accept("ON"):
        c.fail("say what joins them: ON a.x = b.x")
    return expressions.expression(c), None
