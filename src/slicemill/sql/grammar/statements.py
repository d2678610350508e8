"""Parser of scripts: CREATE, DROP, SET, SELECT, PAUSE, INSERT …, separated by semicolons."""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from slicemill.catalog.statements import (
    Command,
    Describe,
    Explain,
    ExplainReplace,
    LifecycleAction,
    Show,
    ShowCreate,
    ShownKind,
    ShowVersions,
)
from slicemill.errors import one_of
from slicemill.extension import load
from slicemill.extension import statements as extension_statements
from slicemill.sql import nodes
from slicemill.sql.cursor import Cursor, word_of
from slicemill.sql.errors import Diagnostic, EslError, SourceText, StatementError
from slicemill.sql.grammar import expressions, functions, queries, tables, windows
from slicemill.sql.grammar import foreign_keywords as foreign
from slicemill.sql.grammar import functions as aggregates
from slicemill.sql.grammar import windows as window_functions
from slicemill.sql.lexer import tokenize
from slicemill.sql.nodes import IF_ABSENT, REPLACE, at, height
from slicemill.time import unit_name

# Commands SHOW, DESCRIBE and EXPLAIN


STARTS = ("SHOW", "DESCRIBE", "DESC", "EXPLAIN")
_REPLACEABLE = ("QUERY", "STREAM", "VIEW", "AGGREGATE", "WINDOW", "ALGEBRAIC", "FUNCTION")


def read_command(source: SourceText) -> Command:
    """Parse the only command of a text, or raise EslError."""
    try:
        c = Cursor(tokenize(source.text), source.text)
        found = _command(c)
        c.take(";")
        if not c.done:
            c.fail()
        return found
    except StatementError as mistake:
        raise EslError(source, [mistake.diagnostic]) from None


def _rest(c: Cursor) -> str:
    """Return the text after EXPLAIN, padded with blanks so that positions do not change."""
    begin = c.span().start
    c.index = len(c.tokens)
    return " " * begin + c.text[begin:]


def _command(c: Cursor) -> Command:
    if c.accept("SHOW"):
        if c.accept("CREATE"):
            if not c.at_name(1):
                return ShowCreate(c.name("a name").name)
            kind = c.plain_word("a kind such as QUERY")
            return ShowCreate(c.name("a name").name, kind)
        if c.accept("VERSIONS"):
            return ShowVersions(c.name("a name").name)
        listings = (*ShownKind, *(hook.plural for hook in extension_statements().values()))
        listing = c.accept_any(listings)
        if not listing:
            c.fail(f"say what: {one_of(listings)}, or CREATE or VERSIONS and a name")
        return Show(ShownKind(listing) if listing in list(ShownKind) else listing)
    if c.accept_any(("DESCRIBE", "DESC")):
        return Describe(c.name("a stream, query, table or view").name)
    c.expect("EXPLAIN")
    if c.looking_at("REPLACE") and (c.word(1) in _REPLACEABLE or _replaceable(c.word(1))):
        return ExplainReplace(_rest(c))
    return Explain(None if c.done or c.word() == ";" else c.name("a query or stream").name)


def _replaceable(kind: str) -> bool | None:
    """Return True if OR REPLACE is allowed for a kind of object of an extension.

    Return None if no extension has objects of this kind.
    """
    hook = extension_statements().get(kind)
    return None if hook is None else hook.replaceable


# PAUSE, RESUME and RESTART, and OR REPLACE and IF NOT EXISTS of CREATE


STEERING_WORDS = tuple(LifecycleAction)
LIVING = ("QUERY", "STREAM")
_BEFORE_KIND = ("ALGEBRAIC", "WINDOW")


def change_lifecycle(c: Cursor) -> nodes.ChangeLifecycle:
    start = c.span()
    action = c.accept_any(STEERING_WORDS)
    assert action, "one of them stands here"
    kind = c.accept_any(LIVING)
    if not kind:
        c.fail(f"say what: {action} {one_of(LIVING)}, and its name")
    name = c.name(f"the name of a {kind.lower()}")
    return at(nodes.ChangeLifecycle(this=name, action=action, kind=kind), c.span_from(start))


def create_mode(c: Cursor) -> str:
    """Parse and remove the `OR REPLACE` or `IF NOT EXISTS` of CREATE.

    OR REPLACE is at the cursor. IF NOT EXISTS follows the kind, as in CREATE TABLE IF NOT EXISTS.
    """
    start = c.span()
    mode = ""
    if c.take("OR"):
        c.expect("REPLACE")
        mode = REPLACE
    kind = 0
    while c.word(kind) in _BEFORE_KIND:
        kind += 1
    place = c.index + kind + 1
    if [c.word(kind + 1 + ahead) for ahead in range(3)] == IF_ABSENT.split():
        if mode:
            raise StatementError(
                f"{REPLACE} and {IF_ABSENT} do not go together", start, "leave one of them out"
            )
        c.tokens = [*c.tokens[:place], *c.tokens[place + 3 :]]
        return IF_ABSENT
    if mode and (c.word(kind) == "TABLE" or _replaceable(c.word(kind)) is False):
        raise StatementError(f"a {c.word(kind).lower()} cannot be replaced", start, "DROP it first")
    return mode


def with_mode(made: exp.Expression, mode: str) -> exp.Expression:
    return nodes.CreateMode(this=made, mode=mode) if mode else made


TIME_UNITS = ("SECONDS", "MILLIS", "MICROS", "NANOS")

STATEMENT_STARTS = (
    "SELECT",
    "WITH",
    "CREATE",
    "DROP",
    "ALTER",
    "SET",
    "REPLAY",
    "AGGREGATE",
    *STEERING_WORDS,
)
# Pattern of a line that begins a statement, even after an unclosed quote in an earlier line.
_FIRST_LINE = re.compile(rf"^[ \t]*(?:{'|'.join(STATEMENT_STARTS)})\b", re.IGNORECASE | re.MULTILINE)

# Maximum height of a syntax tree.
# Trees are printed, bound and compared by recursion, with four frames per level.
MAX_HEIGHT = 150

# Hint for CREATE TABLE … WITH ('connector' = …), the syntax of Flink.
_NO_WITH = (
    "write CREATE STREAM name (columns) ORDER BY ts SLACK 5 SECONDS "
    "USING kafka OPTIONS (kafka.bootstrap.servers = '…', subscribe = '…'), or SOURCE 'file.csv'"
)

_ALTERED = "write ALTER QUERY name SET (weight = 2); all else changes with CREATE OR REPLACE"
_NO_ALTER_TABLE = (
    "a stream gets columns with ALTER STREAM name ADD COLUMN column type, and its SLACK, for tuples that "
    "come late, when it is declared; a table is dropped and declared anew"
)
_WIDENED = (
    "write ALTER STREAM name ADD COLUMN column type; the columns that a stream has stay: "
    "give the new one another name, and read both with UNION ALL"
)


def script(source: SourceText) -> tuple[list[exp.Expression], list[Diagnostic]]:
    """Parse all statements of a text.

    Return the statements and the diagnostics.
    """
    tokens, diagnostics = _readable(source.text)
    c = Cursor(tokens, source.text)
    statements: list[exp.Expression] = []
    while not c.done:
        if c.take(";"):
            continue
        first, complete = c.index, -1
        try:
            statements.append(_parse_statement(c))
            complete = c.index
            _end(c)
        except StatementError as mistake:
            diagnostics.append(mistake.diagnostic)
            # If only the semicolon is missing, the next statement begins at the cursor.
            if c.index != complete or c.word() not in (*STATEMENT_STARTS, *tables.ROW_CHANGES):
                _skip_statement(c, first)
    return statements, diagnostics + c.warnings


def _readable(text: str) -> tuple[list[Token], list[Diagnostic]]:
    """Tokenize `text`, skipping statements with unclosed quotes or comments."""
    diagnostics: list[Diagnostic] = []
    while True:
        try:
            return tokenize(text), diagnostics
        except StatementError as mistake:
            diagnostics.append(mistake.diagnostic)
            opening = mistake.diagnostic.span.start
            ends = [token.end + 1 for token in tokenize(text[:opening]) if word_of(token) == ";"]
            following = _FIRST_LINE.search(text, opening) if text[opening : opening + 1] in "'\"`" else None
            start, end = max(ends, default=0), following.start() if following else len(text)
            # The text is replaced by blanks, so that the positions of all other tokens do not change.
            text = text[:start] + " " * (end - start) + text[end:]


def _parse_statement(c: Cursor) -> exp.Expression:
    start = c.span()
    node = statement(c)
    if height(node) > MAX_HEIGHT:
        hint = "split it with CREATE STREAM or CREATE VIEW"
        raise StatementError(f"this is nested more than {MAX_HEIGHT} levels deep", start, hint)
    return node


def _end(c: Cursor) -> None:
    """Parse the semicolon after a statement, which is optional after a closing brace."""
    if c.done or c.accept(";") or word_of(c.tokens[c.index - 1]) == "}":
        return
    if c.word() in (*STATEMENT_STARTS, *tables.ROW_CHANGES):
        c.fail("end the statement before it with ;")
    c.fail("nothing is open that it could close" if c.word() in (")", "]", "}") else "")


def statement(c: Cursor) -> exp.Expression:
    start = c.span()
    if c.word() in ("SELECT", "WITH", "("):
        return queries.query(c)
    if c.looking_at("AGGREGATE"):
        # Published ESL has definitions without CREATE, so they are accepted with a warning.
        c.warn("CREATE is missing", c.span(), "write CREATE AGGREGATE")
        return aggregates.create_aggregate(c)
    if c.looking_at("REPLACE") and c.take("REPLACE"):  # from EXPLAIN REPLACE
        return at(with_mode(at(_create(c), c.span_from(start)), nodes.REPLACE), c.span_from(start))
    if c.accept("CREATE"):
        mode = create_mode(c)
        return at(with_mode(at(_create(c), c.span_from(start)), mode), c.span_from(start))
    if c.accept("DROP"):
        kinds = (
            "STREAM",
            "QUERY",
            "AGGREGATE",
            "TABLE",
            "VIEW",
            *extension_statements(),
            "FUNCTION",
            "ALERT",
        )
        kind = c.accept_any(kinds)
        if not kind:
            c.fail(f"say what: {one_of(kinds)}")
        exists = c.looking_at("IF", "EXISTS") and c.accept("IF", "EXISTS")
        dropped = nodes.DropObject(this=_object_name(c, "a name"), kind=kind, exists=exists)
        dropped.set("cascade", c.accept("CASCADE"))
        return at(dropped, c.span_from(start))
    if c.accept("ALTER"):
        return at(_alter_stream(c) if c.accept("STREAM") else _alter_query(c), c.span_from(start))
    if c.word() in STEERING_WORDS:
        return change_lifecycle(c)
    if c.take("REPLAY"):
        name = c.name("the bad rows of a stream, as in bid_errors")
        where = expressions.expression(c) if c.accept("WHERE") else None
        return at(nodes.ReplayErrors(this=name, where=where), c.span_from(start))
    if c.accept("SET"):
        return at(_set(c), c.span_from(start))
    if c.word() in tables.ROW_CHANGES:
        return tables.row_change(c)
    foreign.refuse(c, foreign.STATEMENTS)
    c.note("SELECT")
    return c.fail()


def _alter_query(c: Cursor) -> nodes.AlterQuery:
    if not c.accept("QUERY"):
        c.fail(_NO_ALTER_TABLE if c.word() == "TABLE" else _ALTERED)
    name = c.name("the name of a query")
    if not c.accept("SET"):
        c.fail(_ALTERED)
    c.expect("(")
    options = c.listing(lambda: _option(c, nullable=True))
    c.expect(")")
    return nodes.AlterQuery(this=name, options=options)


def _alter_stream(c: Cursor) -> nodes.AlterStream:
    name = c.name("the name of a stream")
    return nodes.AlterStream(this=name, columns=c.listing(lambda: _add_column(c)))


def _add_column(c: Cursor) -> nodes.ColumnDeclaration:
    if not c.accept("ADD"):
        c.fail(_WIDENED)
    start = c.span()
    c.accept("COLUMN")
    column = _column(c)
    if c.accept("DEFAULT"):
        column.set("default", expressions.expression(c))
    return at(column, c.span_from(start))


def _set(c: Cursor) -> nodes.SetOption:
    if not c.at_name():
        c.note("a setting such as policy")
        c.fail("write SET policy = 'hnr'; how a mill runs is said at its start: slicemill run --help")
    name = c.name("a setting such as policy")
    c.expect("=")
    value_at = c.span()
    value = c.string("a value such as 'hnr'")
    if value is None:
        c.fail()
    component = c.name("a stream or query") if c.accept("FOR") else None
    return nodes.SetOption(this=name, value=at(exp.Literal.string(value), value_at), component=component)


def _skip_statement(c: Cursor, first: int) -> None:
    """Skip to the end of the broken statement that began at `first`.

    The end is the `;` of the statement outside braces, or the CREATE or DROP of the next statement. If the
    braces do not balance, the statement ends at the next `;` before a SELECT, so that a missing brace does
    not hide errors in later statements.
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
    if c.take("SOURCE") or c.accept("STREAM"):
        return _create_stream(c)
    if c.accept("TABLE"):
        name = _object_name(c, "a name for the table")
        if c.looking_at("AS", "MATERIALIZED"):
            c.expect("AS", "MATERIALIZED")
            return tables.materialize_table(c, name)
        if c.looking_at("AS"):
            c.note("(")
            c.fail(
                "a table is declared with its columns; a query makes a STREAM, CREATE STREAM t AS SELECT …, "
                "or a VIEW of what a window holds"
            )
        return tables.create_table(c, name, lambda: _table_column(c), lambda: _table_source(c))
    if c.accept("VIEW"):
        name = _object_name(c, "a name for the view")
        c.expect("AS")
        return nodes.CreateView(this=name, query=queries.query(c))
    if c.accept("QUERY"):
        return _create_query(c, _object_name(c, "a name for the query"))
    if c.accept("FUNCTION"):
        return functions.create_function(c, _object_name(c, "a name for the function"))
    if c.accept("ALERT"):
        return create_alert(c, _object_name(c, "a name for the alert"))
    for hook in extension_statements().values():
        if c.accept(hook.kind):
            made: nodes.CreateObject = load(hook.parse)(
                c, _object_name(c, f"a name for the {hook.kind.lower()}")
            )
            return made
    foreign.refuse(c, foreign.CREATED)
    for word in ("AGGREGATE", "WINDOW", "ALGEBRAIC"):
        c.note(word)
    return c.fail()


def _object_name(c: Cursor, what: str) -> exp.Identifier:
    name = c.name(what)
    if c.looking_at("-"):
        start = nodes.span_of(name)
        while c.looking_at("-") and c.at_name(1, frozenset()):
            c.index += 2
        written = c.text[start.start : c.span_from(start).end]
        raise StatementError(
            "a name with a - is a difference",
            c.span_from(start),
            f'write "{written}", in quotes wherever it stands',
        )
    return name


def _create_stream(c: Cursor) -> nodes.CreateStream:
    name = _object_name(c, "a name for the stream")
    retain = _retention(c)
    if retain is not None:
        c.expect("AS")
    if retain is not None or c.accept("AS"):
        return _order_by_slack(c, nodes.CreateStream(this=name, retain=retain, query=queries.query(c)))
    if not c.looking_at("("):
        c.note("(")
        c.fail(_NO_WITH if c.looking_at("FROM") else "")
    node = nodes.CreateStream(this=name)
    node.set("columns", _columns(c, node))
    while True:
        # Published ESL has a `;` before SOURCE, which is accepted.
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
        elif c.take("BEGIN"):
            _set_once(node, "begin", _stream_begin(c))
        elif (retain := _retention(c)) is not None:
            _set_once(node, "retain", retain)
        elif c.word() in ("SOURCE", "USING"):
            source = _source(c)
            assert source is not None, "SOURCE or USING stands here"
            _set_once(node, "source", at(source, c.span_from(start)))
        else:
            if c.looking_at("WITH"):
                raise StatementError(
                    "a stream says with SOURCE or USING where it comes from", c.span(), _NO_WITH
                )
            for word in ("SOURCE", "USING"):
                c.note(word)
            return node


def _create_query(c: Cursor, name: exp.Identifier) -> nodes.CreateQuery:
    """Parse CREATE QUERY.

    FROM, RETAIN and WITH precede AS, because after the SELECT these words would be read as aliases.
    """
    node = nodes.CreateQuery(this=name)
    if c.take("FROM"):
        node.set("begins", _beginning(c))
    if (retain := _retention(c)) is not None:
        node.set("retain", retain)
    if c.accept("WITH"):
        node.set("options", options(c))
    c.expect("AS")
    node.set("query", queries.query(c))
    return node


def _stream_begin(c: Cursor) -> exp.Expression:
    """Parse `BEGIN EARLIEST`, `LATEST` or `TIMESTAMP '2026-01-01'` of a stream.

    The words may be quoted and follow a `=`, as in the options of Kafka and Flink.
    """
    c.accept("=")
    start = c.span()
    hint = "a stream begins BEGIN EARLIEST, BEGIN LATEST, or BEGIN TIMESTAMP '2026-01-01 00:00:00'"
    if word := c.accept_any(("EARLIEST", "LATEST")):
        return at(exp.Var(this=word), start)
    c.accept("TIMESTAMP")
    start = c.span()
    text = c.string("'earliest', 'latest' or a time such as '2026-01-01 00:00:00'")
    if text is None:
        c.fail(hint)
    if text.upper() in ("EARLIEST", "LATEST"):
        return at(exp.Var(this=text.upper()), start)
    return at(exp.Literal.string(text), start)


def _beginning(c: Cursor) -> exp.Expression:
    """Parse `FROM BEGINNING`, `NOW` or `TIMESTAMP '2026-01-01'` of a query."""
    start = c.span()
    if word := c.accept_any(("BEGINNING", "NOW")):
        return at(exp.Var(this=word), start)
    hint = "a query begins FROM BEGINNING, FROM NOW, or FROM TIMESTAMP '2026-01-01 00:00:00'"
    if not c.accept("TIMESTAMP"):
        c.fail(hint)
    start = c.span()
    text = c.string("a time such as '2026-01-01 00:00:00'")
    if text is None:
        c.fail(hint)
    return at(exp.Literal.string(text), start)


def _retention(c: Cursor) -> nodes.Duration | None:
    """Parse `RETAIN 7 DAYS`, the retention of rows that all queries have read."""
    return windows.duration(c) if c.take("RETAIN") else None


def _order_by_slack(c: Cursor, node: nodes.CreateStream) -> nodes.CreateStream:
    """Parse `ORDER BY column SLACK d` of a derived stream.

    The clause follows the query, but is a property of the stream.
    """
    if not c.looking_at("SLACK"):
        return node
    query = node.args["query"]
    order = query.args.get("order") if isinstance(query, exp.Select) else None
    ordered = order.expressions if order is not None else []
    if len(ordered) != 1 or ordered[0].args.get("desc") or not isinstance(ordered[0].this, exp.Column):
        raise StatementError(
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
        raise StatementError(f"{key.upper()} is given twice", nodes.span_of(value), "keep one of the two")
    node.set(key, value)


def _table_column(c: Cursor) -> nodes.ColumnDeclaration:
    if c.looking_at("WATERMARK", "FOR"):
        raise StatementError("a table has no watermark; what has one is a stream", c.span(), _NO_WITH)
    return _column(c)


def _table_source(c: Cursor) -> nodes.SourceClause | None:
    source = _source(c)
    if source is None and c.looking_at("WITH"):
        raise StatementError("a table says with SOURCE or USING where its rows are", c.span(), _NO_WITH)
    return source


def _columns(c: Cursor, stream: nodes.CreateStream) -> list[nodes.ColumnDeclaration]:
    """Parse the columns `(name type, …)` of a stream.

    A WATERMARK among the columns sets the timestamp column and the slack of the stream.
    """
    c.expect("(")
    columns = [column for column in c.listing(lambda: _column_or_watermark(c, stream)) if column is not None]
    c.expect(")")
    return columns


def _column_or_watermark(c: Cursor, stream: nodes.CreateStream) -> nodes.ColumnDeclaration | None:
    if not c.looking_at("WATERMARK", "FOR"):
        declared = _column(c)
        if c.word() in ("NOT", "NULL", "KEY", "PRIMARY", "UNIQUE", "DEFAULT", "CHECK", "REFERENCES"):
            raise StatementError(
                "a column has a name and a type, nothing else", c.span(), "leave the constraint out"
            )
        return declared
    column, slack = window_functions.watermark(c)
    _set_once(stream, "order", column)
    if slack is not None:
        _set_once(stream, "slack", slack)
    return None


def _column(c: Cursor) -> nodes.ColumnDeclaration:
    start = c.span()
    name = c.name("a column")
    if c.looking_at("AS") and c.word(1) in ("PROCTIME", "CURRENT_TIMESTAMP", "NOW"):
        raise StatementError(
            "the clock stamps the tuples of a stream as a whole",
            c.span(),
            "declare current_time timestamp in its place, and ORDER BY current_time behind the columns",
        )
    kind = expressions.type_name(c)
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
        given = options(c) if c.accept("OPTIONS") else None
        return at(nodes.SourceClause(format=form, options=given), c.span_from(start))
    return None


def options(c: Cursor) -> list[nodes.Option]:
    """Parse `(name = value, …)` after WITH or OPTIONS."""
    c.expect("(")
    found = c.listing(lambda: _option(c))
    c.expect(")")
    return found


def _option(c: Cursor, nullable: bool = False) -> nodes.Option:
    start = c.span()
    text = c.string("an option")
    name = at(exp.Literal.string(text), start) if text is not None else _option_name(c)
    c.accept("=")  # the equals sign is optional, as in Spark's OPTIONS
    value_at = c.span()
    value: exp.Expression
    if (quoted := c.string()) is not None:
        value = exp.Literal.string(quoted)
    elif (number := c.number()) is not None:
        value = exp.Literal.number(number)
    elif boolean := c.accept_any(("TRUE", "FALSE")):
        value = exp.Boolean(this=boolean == "TRUE")
    elif nullable and c.accept("NULL"):
        value = exp.Null()
    else:
        c.fail()
    return at(nodes.Option(this=name, value=at(value, value_at)), c.span_from(start))


def _option_name(c: Cursor) -> exp.Expression:
    """Parse an option name, which may have dots, such as `kafka.bootstrap.servers`."""
    start = c.span()
    parts = [c.name("an option")]
    while c.take("."):
        parts.append(c.name("an option"))
    name = ".".join(part.name for part in parts)
    plain = not any(part.quoted for part in parts)
    node = exp.Identifier(this=name, quoted=False) if plain else exp.Literal.string(name)
    return at(node, c.span_from(start))


# CREATE ALERT


def create_alert(c: Cursor, name: exp.Identifier) -> nodes.CreateAlert:
    """Parse `ON query | ANY QUERY | ANY STREAM [WHEN condition [FOR d] [REPEAT EVERY d]] WEBHOOK 'url'`."""
    node = nodes.CreateAlert(this=name)
    c.expect("ON")
    if c.accept("ANY"):
        kind = c.accept_any(("QUERY", "STREAM"))
        if not kind:
            c.fail()
        node.set("any", kind)
    else:
        node.set("on", c.name("a query or stream"))
    if c.accept("WHEN"):
        node.set("when", expressions.expression(c))
        if unit_name(c.word()):
            c.fail(f"write INTERVAL before the number, as in INTERVAL 5 {c.word()}")
        if c.accept("FOR"):
            node.set("held", windows.duration(c))
        if c.accept("REPEAT", "EVERY"):
            node.set("repeat", windows.duration(c))
    c.expect("WEBHOOK")
    url_at = c.span()
    url = c.string("an address such as 'https://example.org/alerts'")
    if url is None:
        c.fail()
    node.set("webhook", at(exp.Literal.string(url), url_at))
    return node
