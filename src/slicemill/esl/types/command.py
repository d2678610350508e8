"""Commands: statements that query the catalog or running system.

Commands declare nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class ShownKind(StrEnum):
    """Kinds of objects that SHOW lists."""

    STREAMS = "STREAMS"
    QUERIES = "QUERIES"
    TABLES = "TABLES"
    VIEWS = "VIEWS"
    AGGREGATES = "AGGREGATES"
    MODELS = "MODELS"
    FUNCTIONS = "FUNCTIONS"
    CLASSIFIERS = "CLASSIFIERS"
    ALERTS = "ALERTS"
    SETTINGS = "SETTINGS"
    STATEMENTS = "STATEMENTS"


@dataclass(frozen=True, slots=True)
class Show:
    """`SHOW QUERIES`."""

    listing: ShownKind


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """`SHOW CREATE [kind] name`: show the statement that declares an object."""

    name: str
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class ShowVersions:
    """`SHOW VERSIONS name`: list all definitions of an object."""

    name: str


@dataclass(frozen=True, slots=True)
class Describe:
    """`DESCRIBE name`: list the columns of a relation."""

    name: str


@dataclass(frozen=True, slots=True)
class Explain:
    """`EXPLAIN [name]`: show the plan of a query, or of all queries."""

    name: str | None


@dataclass(frozen=True, slots=True)
class ExplainReplace:
    """`EXPLAIN REPLACE QUERY q AS …`: show which state CREATE OR REPLACE keeps, and which starts empty."""

    statement: str


Command: TypeAlias = Show | ShowCreate | ShowVersions | Describe | Explain | ExplainReplace
