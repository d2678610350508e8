"""Commands: statements that ask about the catalog or steer what runs, and declare nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class ShownKind(StrEnum):
    """What SHOW lists."""

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
    """`SHOW CREATE [kind] name`: the statement that declared it."""

    name: str
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class ShowVersions:
    """`SHOW VERSIONS name`: the definitions that it has had."""

    name: str


@dataclass(frozen=True, slots=True)
class Describe:
    """`DESCRIBE name`: its columns."""

    name: str


@dataclass(frozen=True, slots=True)
class Explain:
    """`EXPLAIN [name]`: how a query runs, or all of them."""

    name: str | None


@dataclass(frozen=True, slots=True)
class ExplainReplace:
    """`EXPLAIN REPLACE QUERY q AS …`: what CREATE OR REPLACE would keep, and what would begin anew."""

    statement: str


Command: TypeAlias = Show | ShowCreate | ShowVersions | Describe | Explain | ExplainReplace
