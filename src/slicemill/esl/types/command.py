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
    SETTINGS = "SETTINGS"
    STATEMENTS = "STATEMENTS"


@dataclass(frozen=True, slots=True)
class Show:
    """`SHOW QUERIES`."""

    listing: ShownKind


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """`SHOW CREATE name`: the statement that declared it."""

    name: str


@dataclass(frozen=True, slots=True)
class Describe:
    """`DESCRIBE name`: its columns."""

    name: str


@dataclass(frozen=True, slots=True)
class Explain:
    """`EXPLAIN [name]`: how a query runs, or all of them."""

    name: str | None


Command: TypeAlias = Show | ShowCreate | Describe | Explain
