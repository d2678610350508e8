"""Statements and scripts: CREATE, DROP, SELECT, separated by semicolons."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import Token

from slicemill.esl import nodes
from slicemill.esl.cursor import Cursor
from slicemill.esl.errors import Diagnostic, Mistake
from slicemill.esl.grammar import aggregates, expressions, queries, windows
from slicemill.esl.nodes import at
from slicemill.esl.source import Source
from slicemill.esl.tokens import tokenize, unclosed

_STARTS = ("SELECT", "WITH", "CREATE", "DROP", "AGGREGATE", "(")
DROPPABLE = ("STREAM", "QUERY", "AGGREGATE", "TABLE", "VIEW")


def script(source: Source) -> tuple[list[exp.Expression], list[Diagnostic]]:
    """All statements of a text, and a diagnostic for each one that cannot be read."""
    diagnostics: list[Diagnostic] = []
    text = source.text
    try:
        tokens: list[Token] = tokenize(text)
    except Mistake as mistake:
        diagnostics.append(mistake.diagnostic)
        # What stands before the open quote is still worth reading: up to the statement that holds it.
        _, start = unclosed(text)
        tokens = tokenize(text[: text.rfind(";", 0, start) + 1])
    c = Cursor(tokens, text)
    statements: list[exp.Expression] = []
    while not c.done:
        if c.accept(";"):
            continue
        first = c.index
        try:
            statements.append(statement(c))
            if not c.done:
                c.expect(";")
        except Mistake as mistake:
            diagnostics.append(mistake.diagnostic)
            _skip_statement(c, first)
    return statements, diagnostics


def statement(c: Cursor) -> exp.Expression:
    start = c.span()
    if c.word() in ("SELECT", "WITH", "("):
        return queries.query(c)
    if c.looking_at("AGGREGATE"):
        # The theses print some definitions without CREATE.
        return aggregates.create_aggregate(c)
    if c.accept("CREATE"):
        return at(_create(c), c.span_from(start))
    if c.accept("DROP"):
        kind = c.accept_any(DROPPABLE)
        if not kind:
            c.fail()
        return at(nodes.DropObject(this=c.name("a name"), kind=kind), c.span_from(start))
    for word in ("SELECT", "CREATE", "DROP"):
        c.note(word)
    c.fail()


def _skip_statement(c: Cursor, first: int) -> None:
    """Go behind the `;` that ends the broken statement that began at `first`.

    Braces are counted from its start. Where they never balance, the next `;` in front of a word that starts
    a statement is taken, so that one missing brace does not hide the rest of the file.
    """
    depth = 0
    for place in range(first, len(c.tokens)):
        text = c.tokens[place].text
        depth += (text == "{") - (text == "}")
        if text == ";" and depth <= 0 and place >= c.index:
            c.index = place + 1
            return
    for place in range(max(c.index, first + 1), len(c.tokens)):
        if c.tokens[place - 1].text == ";" and c.tokens[place].text.upper() in ("CREATE", "DROP", "SELECT"):
            c.index = place
            return
    c.index = len(c.tokens)


def _create(c: Cursor) -> exp.Expression:
    if c.word() in ("ALGEBRAIC", "WINDOW", "AGGREGATE"):
        return aggregates.create_aggregate(c)
    if c.accept("STREAM"):
        return _create_stream(c)
    if c.accept("TABLE"):
        name = c.name("a name for the table")
        columns = _columns(c)
        return nodes.CreateTable(this=name, columns=columns, source=_source(c))
    if c.accept("VIEW"):
        name = c.name("a name for the view")
        c.expect("AS")
        return nodes.CreateView(this=name, query=queries.query(c))
    if c.accept("QUERY"):
        name = c.name("a name for the query")
        options = _options(c) if c.accept("WITH") else None
        c.expect("AS")
        return nodes.CreateQuery(this=name, options=options, query=queries.query(c))
    for word in ("ALGEBRAIC", "WINDOW", "AGGREGATE"):
        c.note(word)
    c.fail()


def _create_stream(c: Cursor) -> nodes.CreateStream:
    name = c.name("a name for the stream")
    if c.accept("AS"):
        return nodes.CreateStream(this=name, query=queries.query(c))
    if not c.looking_at("("):
        c.note("(")
        c.fail()
    node = nodes.CreateStream(this=name, columns=_columns(c))
    while True:
        # The theses print a `;` in front of SOURCE.
        if c.looking_at(";") and c.word(1) in ("SOURCE", "USING"):
            c.advance()
        start = c.span()
        if c.accept("ORDER", "BY"):
            _set_once(node, "order", c.name("the timestamp column, or current_time"), c)
        elif c.accept("SLACK"):
            _set_once(node, "slack", windows.duration(c), c)
        elif c.accept("SKEW"):
            _set_once(node, "skew", windows.duration(c), c)
        elif c.word() in ("SOURCE", "USING"):
            source = _source(c)
            assert source is not None, "SOURCE or USING stands here"
            _set_once(node, "source", at(source, c.span_from(start)), c)
        else:
            for word in ("SOURCE", "USING"):
                c.note(word)
            return node


def _set_once(node: exp.Expression, key: str, value: exp.Expression, c: Cursor) -> None:
    if node.args.get(key) is not None:
        raise Mistake(f"{key.upper()} is given twice", nodes.span_of(value), "keep one of the two")
    node.set(key, value)


def _columns(c: Cursor) -> list[nodes.ColumnDeclaration]:
    c.expect("(")
    columns = c.listing(lambda: _column(c))
    c.expect(")")
    return columns


def _column(c: Cursor) -> nodes.ColumnDeclaration:
    start = c.span()
    name = c.name("a column")
    kind = expressions.type_name(c)
    return at(nodes.ColumnDeclaration(this=name, kind=kind), c.span_from(start))


def _source(c: Cursor) -> nodes.SourceClause | None:
    start = c.span()
    if c.accept("SOURCE"):
        url_at = c.span()
        url = c.string("a source such as 'tcp://localhost:4445'")
        if url is None:
            c.fail()
        return at(nodes.SourceClause(url=at(exp.Literal.string(url), url_at)), c.span_from(start))
    if c.accept("USING"):
        form = c.name("a format such as parquet")
        options = _options(c) if c.accept("OPTIONS") else None
        return at(nodes.SourceClause(format=form, options=options), c.span_from(start))
    return None


def _options(c: Cursor) -> list[nodes.Option]:
    c.expect("(")
    options = c.listing(lambda: _option(c))
    c.expect(")")
    return options


def _option(c: Cursor) -> nodes.Option:
    start = c.span()
    text = c.string("an option")
    name = at(exp.Identifier(this=text, quoted=True), start) if text is not None else _dotted(c)
    if not c.accept("="):
        c.note("a value")
    value_at = c.span()
    value: exp.Expression
    if (quoted := c.string()) is not None:
        value = exp.Literal.string(quoted)
    elif (number := c.number()) is not None:
        value = exp.Literal.number(number)
    elif c.word() in ("TRUE", "FALSE"):
        value = exp.Boolean(this=c.advance().text.upper() == "TRUE")
    else:
        c.fail()
    return at(nodes.Option(this=name, value=at(value, value_at)), c.span_from(start))


def _dotted(c: Cursor) -> exp.Identifier:
    """Spark's option names have dots: `kafka.bootstrap.servers`."""
    start = c.span()
    parts = [c.name("an option").name]
    while c.accept("."):
        parts.append(c.name("an option").name)
    return at(exp.Identifier(this=".".join(parts), quoted=False), c.span_from(start))
