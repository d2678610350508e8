"""Commands: statements that read the catalog or the running system.

A command does not declare an object.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from slicemill.catalog.expressions import Expr
from slicemill.errors import format_count


class ShownKind(StrEnum):
    """Kinds of objects that SHOW lists."""

    STREAMS = "STREAMS"
    QUERIES = "QUERIES"
    TABLES = "TABLES"
    VIEWS = "VIEWS"
    AGGREGATES = "AGGREGATES"
    FUNCTIONS = "FUNCTIONS"
    ALERTS = "ALERTS"
    SETTINGS = "SETTINGS"
    STATEMENTS = "STATEMENTS"


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW command, such as `SHOW QUERIES`, which lists all objects of a kind.

    For objects of extensions, `listing` is the plural of their kind.
    """

    listing: ShownKind | str


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
    """`EXPLAIN REPLACE QUERY q AS …`: show which state a replacement would keep.

    The command shows which state CREATE OR REPLACE would keep, and which would start empty.
    """

    statement: str


Command: TypeAlias = Show | ShowCreate | ShowVersions | Describe | Explain | ExplainReplace


# PAUSE, RESUME and RESTART of queries and streams


class LifecycleAction(StrEnum):
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    RESTART = "RESTART"


_OUTCOMES = {
    LifecycleAction.PAUSE: "is paused",
    LifecycleAction.RESUME: "goes on",
    LifecycleAction.RESTART: "is started again",
}


@dataclass(frozen=True, slots=True)
class LifecycleChange:
    """`PAUSE QUERY q`: change of the lifecycle state of a query or stream."""

    action: LifecycleAction
    kind: str  # kind of the object: QUERY or STREAM
    name: str

    @property
    def outcome(self) -> str:
        return f"{self.kind.lower()} {self.name} {_OUTCOMES[self.action]}"


# REPLAY, which reads rejected rows of a stream again


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Numbers of rows that a REPLAY has read, accepted and rejected.

    Of the `read` rows, `late` rows arrived too late for the stream's order. `failed` rows were rejected
    again.
    """

    read: int
    failed: int
    late: int

    def __str__(self) -> str:
        tried = format_count(self.read + self.failed, "row")
        late = f", {self.late} of them too late for their order" if self.late else ""
        return f"{tried} replayed: {self.read} read{late}, {self.failed} failed again"


@dataclass(frozen=True, slots=True)
class Replay:
    """`REPLAY s_errors WHERE …`: read rejected rows again.

    `name` is the error log, and `stream` is the declared stream.
    """

    name: str
    stream: str
    where: Expr | None = None
    outcome: ReplayOutcome | None = None
