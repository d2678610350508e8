"""Parse the commands SHOW, DESCRIBE and EXPLAIN."""

from __future__ import annotations

from slicemill.errors import one_of
from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.errors import EslError, Mistake
from slicemill.esl.syntax.source import SourceText
from slicemill.esl.syntax.tokens import tokenize
from slicemill.esl.types.command import (
    Command,
    Describe,
    Explain,
    ExplainReplace,
    Show,
    ShowCreate,
    ShownKind,
    ShowVersions,
)

STARTS = ("SHOW", "DESCRIBE", "DESC", "EXPLAIN")
_REPLACEABLE = ("QUERY", "STREAM", "VIEW", "AGGREGATE", "WINDOW", "ALGEBRAIC", "MODEL", "FUNCTION")


def read_command(source: SourceText) -> Command:
    """Parse the only command of a text, or raise EslError."""
    try:
        c = Cursor(tokenize(source.text), source.text)
        found = _command(c)
        c.take(";")
        if not c.done:
            c.fail()
        return found
    except Mistake as mistake:
        raise EslError(source, [mistake.diagnostic]) from None


def _rest(c: Cursor) -> str:
    """Return the text after EXPLAIN, padded so that positions stay the same."""
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
        listing = c.accept_any(tuple(ShownKind))
        if not listing:
            c.fail(f"say what: {one_of(tuple(ShownKind))}, or CREATE or VERSIONS and a name")
        return Show(ShownKind(listing))
    if c.accept_any(("DESCRIBE", "DESC")):
        return Describe(c.name("a stream, query, table or view").name)
    c.expect("EXPLAIN")
    if c.looking_at("REPLACE") and c.word(1) in _REPLACEABLE:
        return ExplainReplace(_rest(c))
    return Explain(None if c.done or c.word() == ";" else c.name("a query or stream").name)
