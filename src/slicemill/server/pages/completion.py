"""Completions for the editor of statements: words of the language and names of the catalog."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.extended import CalledDefinition
from slicemill.catalog.function import FunctionDefinition
from slicemill.explain.statements import describe
from slicemill.extension import statements
from slicemill.functions.signatures import SCALARS
from slicemill.server.user_session import UserSession
from slicemill.sql.lexer import NOT_AN_ALIAS
from slicemill.types import SPELLINGS

# Only a few words are reserved.
# The words below are keywords only at some positions, but are useful completions.
_MORE_KEYWORDS = """
    AGGREGATE ALERT ALTER CHANGES CLOSE CUMULATE DAY DAYS DESC DESCRIBE EVERY EXPLAIN FILTER FINAL
    FUNCTION GAP HOP HOUR HOURS ITERATE INITIALIZE LANGUAGE LATE MILLISECONDS MINUTE MINUTES OPTIONS
    PAUSE PRECEDING QUERIES QUERY REPLACE RESTART RESUME RETURN RETURNS SECOND SECONDS SESSION SETTINGS SHOW
    SKEW SLACK SOURCE STATEMENTS STREAM STREAMS TABLE TABLES TERMINATE TUMBLE UNBOUNDED UNTIL VALID VIEW
    WATERMARK WHILE
"""


@dataclass(frozen=True, slots=True)
class FunctionCompletion:
    """Function with its call syntax."""

    name: str
    call: str


@dataclass(frozen=True, slots=True)
class ColumnCompletion:
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class RelationCompletion:
    """Stream, table, view or query with its columns."""

    name: str
    kind: str
    columns: list[ColumnCompletion]


@dataclass(frozen=True, slots=True)
class Completions:
    keywords: list[str]
    types: list[str]
    functions: list[FunctionCompletion]
    relations: list[RelationCompletion]


def completions_for(session: UserSession) -> Completions:
    """Return the completions for a session, with the names that its principal may see."""
    catalog = session.service.mill.catalog
    aggregates = [
        FunctionCompletion(
            one.name, f"{one.name}({', '.join(word.partition('{')[0] for word in one.declared)})"
        )
        for one in BUILTINS.values()
    ]
    scalars = [FunctionCompletion(name, str(signature)) for name, signature in SCALARS.items()]
    own: tuple[AggregateDefinition | FunctionDefinition | CalledDefinition, ...] = (
        *catalog.base_aggregates.values(),
        *catalog.functions.values(),
        *catalog.callables.values(),
    )
    declared = [
        FunctionCompletion(one.name, f"{one.name}(…)") for one in own if session.principal.may_name(one.name)
    ]
    relations = [
        RelationCompletion(
            one.name, describe(one)[0], [ColumnCompletion(c.name, str(c.type)) for c in one.schema]
        )
        for one in (*catalog.relations.values(), *catalog.queries.values())
        if session.principal.may_name(one.name)
    ]
    return Completions(
        sorted(NOT_AN_ALIAS | set(_MORE_KEYWORDS.split()) | set(statements())),
        sorted(SPELLINGS),
        sorted([*aggregates, *scalars, *declared], key=lambda one: one.name),
        relations,
    )
