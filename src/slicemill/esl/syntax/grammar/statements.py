"""Statements and scripts: CREATE, DROP, SET, SELECT, separated by semicolons."""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from slicemill.errors import one_of
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.cursor import Cursor, word_of
from slicemill.esl.syntax.errors import Diagnostic, Mistake
from slicemill.esl.syntax.grammar import (
    aggregates,
    classifiers,
    expressions,
    functions,
    models,
    queries,
    window_functions,
    windows,
)
from slicemill.esl.syntax.nodes import at, height
from slicemill.esl.syntax.source import SourceText
from slicemill.esl.syntax.tokens import tokenize

TIME_UNITS = ("SECONDS", "MILLIS", "MICROS", "NANOS")
DROPPABLE = ("STREAM", "QUERY", "AGGREGATE", "TABLE", "VIEW", "CLASSIFIER", "MODEL", "FUNCTION")

_STARTS = ("SELECT", "WITH", "CREATE", "DROP", "SET", "AGGREGATE")
# A line that begins like this begins a statement, whatever an unclosed quote above it makes of it.
_FIRST_LINE = re.compile(rf"^[ \t]*(?:{'|'.join(_STARTS)})\b", re.IGNORECASE | re.MULTILINE)

# Trees are printed, bound and compared by recursion: about four frames for each level.
MAX_HEIGHT = 150

# For those who bring CREATE TABLE … WITH ('connector' = …) from elsewhere.
_NO_WITH = (
    "write CREATE STREAM name (columns) ORDER BY ts SLACK 5 SECONDS "
    "USING kafka OPTIONS (kafka.bootstrap.servers = '…', subscribe = '…'), or SOURCE 'file.csv'"
)


def script(source: SourceText) -> tuple[list[exp.Expression], list[Diagnostic]]:
    """All statements of a text, and diagnostics: for each one that cannot be read, and warnings."""
    tokens, diagnostics = _readable(source.text)
    c = Cursor(tokens, source.text)
    statements: list[exp.Expression] = []
    while not c.done:
        if c.take(";"):
            continue
        first, complete = c.index, -1
        try:
            statements.append(_limited_statement(c))
            complete = c.index
            _end(c)
        except Mistake as mistake:
            diagnostics.append(mistake.diagnostic)
            # Where only the semicolon is missing, the next statement begins here.
            if c.index != complete or c.word() not in _STARTS:
                _skip_statement(c, first)
    return statements, diagnostics + c.warnings


def _readable(text: str) -> tuple[list[Token], list[Diagnostic]]:
    """The tokens of `text` without the statements that hold an unclosed quote or comment."""
    diagnostics: list[Diagnostic] = []
    while True:
        try:
            return tokenize(text), diagnostics
        except Mistake as mistake:
            diagnostics.append(mistake.diagnostic)
            opening = mistake.diagnostic.span.start
            ends = [token.end + 1 for token in tokenize(text[:opening]) if word_of(token) == ";"]
            following = _FIRST_LINE.search(text, opening) if text[opening : opening + 1] in "'\"`" else None
            start, end = max(ends, default=0), following.start() if following else len(text)
            # Blanks keep every other token at its place.
            text = text[:start] + " " * (end - start) + text[end:]


def _limited_statement(c: Cursor) -> exp.Expression:
    start = c.span()
    node = statement(c)
    if height(node) > MAX_HEIGHT:
        hint = "split it with CREATE STREAM or CREATE VIEW"
        raise Mistake(f"this is nested more than {MAX_HEIGHT} levels deep", start, hint)
    return node


def _end(c: Cursor) -> None:
    """The semicolon behind a statement; a closing brace ends one as well."""
    if c.done or c.accept(";") or word_of(c.tokens[c.index - 1]) == "}":
        return
    if c.word() in _STARTS:
        c.fail("end the statement before it with ;")
    c.fail("nothing is open that it could close" if c.word() in (")", "]", "}") else "")


def statement(c: Cursor) -> exp.Expression:
    start = c.span()
    if c.word() in ("SELECT", "WITH", "("):
        return queries.query(c)
    if c.looking_at("AGGREGATE"):
        # The theses print some definitions without CREATE.
        c.warn("CREATE is missing", c.span(), "write CREATE AGGREGATE")
        return aggregates.create_aggregate(c)
    if c.accept("CREATE"):
        return at(_create(c), c.span_from(start))
    if c.accept("DROP"):
        kind = c.accept_any(DROPPABLE)
        if not kind:
            c.fail(f"say what: {one_of(DROPPABLE)}")
        return at(nodes.DropObject(this=_object_name(c, "a name"), kind=kind), c.span_from(start))
    if c.accept("SET"):
        return at(_set(c), c.span_from(start))
    c.note("SELECT")
    if c.word() in ("INSERT", "UPDATE", "DELETE"):
        c.fail("rows are changed inside aggregates only: in INITIALIZE, ITERATE, TERMINATE or EXPIRE")
    return c.fail()


def _set(c: Cursor) -> nodes.SetOption:
    name = c.name("a setting such as policy")
    c.expect("=")
    value_at = c.span()
    value = c.string("a value such as 'hnr'")
    if value is None:
        c.fail()
    component = c.name("a stream or query") if c.accept("FOR") else None
    return nodes.SetOption(this=name, value=at(exp.Literal.string(value), value_at), component=component)


def _skip_statement(c: Cursor, first: int) -> None:
    """Go to the end of the broken statement that began at `first`.

    That is its `;` outside of braces, or the CREATE or DROP of the next statement. Where the braces never
    balance, the next `;` in front of a SELECT is taken, so that a missing brace does not hide the rest.
    """
    depth = 0
    before_select = None
    for place in range(first, len(c.tokens)):
        word = word_of(c.tokens[place])
        depth += (word == "{") - (word == "}")
        if place < max(c.index, first + 1):
            continue
        if word == ";" and depth <= 0:
            c.index = place
            return
        if word in ("CREATE", "DROP"):
            c.index = place if before_select is None else before_select
            return
        if word == "SELECT" and word_of(c.tokens[place - 1]) == ";" and before_select is None:
            before_select = place
    c.index = len(c.tokens) if before_select is None else before_select


def _create(c: Cursor) -> exp.Expression:
    if c.word() in ("ALGEBRAIC", "WINDOW", "AGGREGATE"):
        return aggregates.create_aggregate(c)
    if c.accept("STREAM"):
        return _create_stream(c)
    if c.accept("TABLE"):
        name = _object_name(c, "a name for the table")
        if c.looking_at("AS"):
            c.note("(")
            c.fail("a table is declared with its columns; a query makes a VIEW or a STREAM")
        columns = _columns(c)
        source = _source(c)
        if source is None and c.looking_at("WITH"):
            raise Mistake("a table says with SOURCE or USING where its rows are", c.span(), _NO_WITH)
        return nodes.CreateTable(this=name, columns=columns, source=source)
    if c.accept("VIEW"):
        name = _object_name(c, "a name for the view")
        c.expect("AS")
        return nodes.CreateView(this=name, query=queries.query(c))
    if c.accept("QUERY"):
        name = _object_name(c, "a name for the query")
        options = _options(c) if c.accept("WITH") else None
        c.expect("AS")
        return nodes.CreateQuery(this=name, options=options, query=queries.query(c))
    if c.accept("CLASSIFIER"):
        classifier = classifiers.create_classifier(c, _object_name(c, "a name for the classifier"))
        c.expect("WITH")
        classifier.set("options", _options(c))
        return classifier
    if c.accept("FUNCTION"):
        return functions.create_function(c, _object_name(c, "a name for the function"))
    if c.accept("MODEL"):
        model = models.create_model(c, _object_name(c, "a name for the model"))
        model.set("options", _options(c) if c.accept("WITH") else None)
        c.expect("AS")
        model.set("texts", models.expressions(c, _STARTS, several=model.args.get("results") is not None))
        return model
    for word in ("AGGREGATE", "WINDOW", "ALGEBRAIC"):
        c.note(word)
    return c.fail("there is no OR REPLACE: DROP the old one first" if c.looking_at("OR") else "")


def _object_name(c: Cursor, what: str) -> exp.Identifier:
    if c.looking_at("IF", "EXISTS") or c.looking_at("IF", "NOT", "EXISTS"):
        raise Mistake("there is no IF EXISTS in ESL", c.span(), "leave it out")
    name = c.name(what)
    if c.looking_at("-"):
        start = nodes.span_of(name)
        while c.looking_at("-") and c.at_name(1, frozenset()):
            c.index += 2
        written = c.text[start.start : c.span_from(start).end]
        raise Mistake(
            "a name with a - is a difference",
            c.span_from(start),
            f'write "{written}", in quotes wherever it stands',
        )
    return name


def _create_stream(c: Cursor) -> nodes.CreateStream:
    name = _object_name(c, "a name for the stream")
    if c.accept("AS"):
        return _derived(c, nodes.CreateStream(this=name, query=queries.query(c)))
    if not c.looking_at("("):
        c.note("(")
        c.fail()
    node = nodes.CreateStream(this=name)
    node.set("columns", _columns(c, node))
    while True:
        # The theses print a `;` in front of SOURCE.
        if c.looking_at(";") and c.word(1) in ("SOURCE", "USING"):
            c.warn(
                f"this ; stands before the end: {c.word(1)} belongs to the stream", c.span(), "leave it out"
            )
            c.advance()
        start = c.span()
        if c.accept("ORDER", "BY"):
            _set_once(node, "order", c.name("the timestamp column, or current_time"))
        elif c.accept("SLACK"):
            _set_once(node, "slack", windows.duration(c))
        elif c.accept("SKEW"):
            _set_once(node, "skew", windows.duration(c))
        elif c.word() in ("SOURCE", "USING"):
            source = _source(c)
            assert source is not None, "SOURCE or USING stands here"
            _set_once(node, "source", at(source, c.span_from(start)))
        else:
            if c.looking_at("WITH"):
                raise Mistake("a stream says with SOURCE or USING where it comes from", c.span(), _NO_WITH)
            for word in ("SOURCE", "USING"):
                c.note(word)
            return node


def _derived(c: Cursor, node: nodes.CreateStream) -> nodes.CreateStream:
    """`ORDER BY column SLACK d` behind the query of a derived stream is the stream's, not the query's."""
    if not c.looking_at("SLACK"):
        return node
    query = node.args["query"]
    order = query.args.get("order") if isinstance(query, exp.Select) else None
    ordered = order.expressions if order is not None else []
    if len(ordered) != 1 or ordered[0].args.get("desc") or not isinstance(ordered[0].this, exp.Column):
        raise Mistake(
            "SLACK belongs to the column that a stream is ordered by",
            c.span(),
            "write CREATE STREAM s AS SELECT … ORDER BY ts SLACK 5 SECONDS, of one SELECT",
        )
    c.expect("SLACK")
    query.set("order", None)
    node.set("order", ordered[0].this.this)
    node.set("slack", windows.duration(c))
    return node


def _set_once(node: exp.Expression, key: str, value: exp.Expression) -> None:
    if node.args.get(key) is not None:
        raise Mistake(f"{key.upper()} is given twice", nodes.span_of(value), "keep one of the two")
    node.set(key, value)


def _columns(c: Cursor, stream: nodes.CreateStream | None = None) -> list[nodes.ColumnDeclaration]:
    """`(name type, …)`; among those of a stream a WATERMARK may stand, which is its order and slack."""
    c.expect("(")
    columns = [column for column in c.listing(lambda: _column_or_watermark(c, stream)) if column is not None]
    c.expect(")")
    return columns


def _column_or_watermark(c: Cursor, stream: nodes.CreateStream | None) -> nodes.ColumnDeclaration | None:
    if not c.looking_at("WATERMARK", "FOR"):
        return _column(c)
    if stream is None:
        raise Mistake(
            "a table has no watermark; what has one is a stream",
            c.span(),
            _NO_WITH,
        )
    column, slack = window_functions.watermark(c)
    _set_once(stream, "order", column)
    if slack is not None:
        _set_once(stream, "slack", slack)
    return None


def _column(c: Cursor) -> nodes.ColumnDeclaration:
    start = c.span()
    name = c.name("a column")
    if c.looking_at("AS") and c.word(1) in ("PROCTIME", "CURRENT_TIMESTAMP", "NOW"):
        raise Mistake(
            "the clock stamps the tuples of a stream as a whole",
            c.span(),
            "declare current_time timestamp in its place, and ORDER BY current_time behind the columns",
        )
    kind = expressions.type_name(c)
    if c.word() in ("NOT", "NULL", "PRIMARY", "UNIQUE", "DEFAULT", "CHECK", "REFERENCES"):
        raise Mistake("a column has a name and a type, nothing else", c.span(), "leave the constraint out")
    node = nodes.ColumnDeclaration(this=name, kind=kind)
    unit_at = c.span()
    if c.word() in TIME_UNITS:
        node.set("unit", at(exp.Var(this=c.accept_any(TIME_UNITS)), unit_at))
    return at(node, c.span_from(start))


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
    name = at(exp.Literal.string(text), start) if text is not None else _dotted(c)
    c.accept("=")  # Spark's own OPTIONS may leave it out
    value_at = c.span()
    value: exp.Expression
    if (quoted := c.string()) is not None:
        value = exp.Literal.string(quoted)
    elif (number := c.number()) is not None:
        value = exp.Literal.number(number)
    elif boolean := c.accept_any(("TRUE", "FALSE")):
        value = exp.Boolean(this=boolean == "TRUE")
    else:
        c.fail()
    return at(nodes.Option(this=name, value=at(value, value_at)), c.span_from(start))


def _dotted(c: Cursor) -> exp.Expression:
    """Spark's option names have dots: `kafka.bootstrap.servers`."""
    start = c.span()
    parts = [c.name("an option")]
    while c.take("."):
        parts.append(c.name("an option"))
    name = ".".join(part.name for part in parts)
    plain = not any(part.quoted for part in parts)
    node = exp.Identifier(this=name, quoted=False) if plain else exp.Literal.string(name)
    return at(node, c.span_from(start))
