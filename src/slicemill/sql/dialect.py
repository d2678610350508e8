"""ESL as a sqlglot dialect for `sqlglot.parse(text, read="esl")` and `node.sql(dialect="esl")`.

>>> import sqlglot
>>> sqlglot.parse_one("select price*2 p from Bid [range 5 min] where price>1000", read="esl").sql("esl")
'SELECT price * 2 AS p FROM Bid [RANGE 5 MINUTES] WHERE price > 1000'
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from slicemill.sql.errors import EslError, SourceText
from slicemill.sql.grammar import statements
from slicemill.sql.lexer import EslTokenizer
from slicemill.sql.printer import EslGenerator


def parse(source: SourceText | str) -> list[exp.Expression]:
    """Parse an ESL text, or raise EslError with all errors."""
    source = source if isinstance(source, SourceText) else SourceText(source)
    parsed, diagnostics = statements.script(source)
    if mistakes := [diagnostic for diagnostic in diagnostics if not diagnostic.warning]:
        raise EslError(source, mistakes)
    return parsed


def to_esl(node: exp.Expression, pretty: bool = False) -> str:
    """Return a statement or expression as ESL text."""
    return EslGenerator(pretty=pretty, dialect=Esl()).generate(node)


class Esl(Dialect):
    """Dialect class that registers ESL's parser and printer with sqlglot."""

    tokenizer_class = EslTokenizer
    generator_class = EslGenerator

    def parse(self, sql: str, **opts: Any) -> list[exp.Expr | None]:
        del opts  # options of sqlglot such as the error level have no effect
        return list(parse(sql))
