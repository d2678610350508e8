"""ESL as a sqlglot dialect: `sqlglot.parse(text, read="esl")` and `node.sql(dialect="esl")` work.

>>> import sqlglot
>>> sqlglot.parse_one("select price*2 p from Bid [range 5 min] where price>1000", read="esl").sql("esl")
'SELECT price * 2 AS p FROM Bid [RANGE 5 MINUTE] WHERE price > 1000'
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.parser import Parser
from sqlglot.tokens import Token

from slicemill.esl.errors import EslError
from slicemill.esl.generator import EslGenerator
from slicemill.esl.grammar import statements
from slicemill.esl.source import Source
from slicemill.esl.tokens import EslTokenizer


def parse(source: Source | str) -> list[exp.Expression]:
    """The statements of an ESL text; an EslError with every mistake in it if it has any."""
    source = source if isinstance(source, Source) else Source(source)
    parsed, diagnostics = statements.script(source)
    if diagnostics:
        raise EslError(source, diagnostics)
    return parsed


def to_esl(node: exp.Expression, pretty: bool = False) -> str:
    """A statement or expression as ESL text."""
    return EslGenerator(pretty=pretty, dialect=Esl(), normalize_functions=False, comments=False).generate(node)


class EslParser(Parser):
    """sqlglot's door to our grammar."""

    def parse(self, raw_tokens: list[Token], sql: str) -> list[Any]:
        del raw_tokens  # the grammar tokenizes itself, to place unclosed quotes
        return list(parse(Source(sql)))


class Esl(Dialect):
    NORMALIZE_FUNCTIONS: ClassVar[bool] = False
    tokenizer_class = EslTokenizer
    parser_class = EslParser
    generator_class = EslGenerator
