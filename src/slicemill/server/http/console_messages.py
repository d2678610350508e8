"""Pydantic messages of the web console's routes, described in OpenAPI."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class CauseBody(BaseModel):
    """Cause of a slow query. `kind` is for programs, `text` for people, `of` names the task or stream."""

    attention: int
    kind: str
    text: str
    of: str


class StreamFigures(BaseModel):
    name: str
    rate: float
    read: int
    unneeded: int
    late: int
    bad: int
    error: str | None
    watermark_us: int | None
    ended: bool


class QueryLine(BaseModel):
    """Query in the overview, with metrics of the last seconds.

    `lag_s` is the distance of its results behind its streams, in event time. `budget` describes what load
    shedding may drop.
    """

    name: str
    state: str
    task: str
    shared_by: int
    rows: int
    rate: float
    p50_ms: float | None
    p99_ms: float | None
    slowdown: float | None
    staleness: float | None
    rows_waiting: int
    state_bytes: int
    cpu: float
    task_cpu: float
    level: str | None
    level_met: bool | None
    lag_s: float | None
    budget: str | None
    shed: int | None
    shed_share: float | None
    accuracy: float | None
    watermark_us: int | None
    policy: str
    cause: CauseBody | None


class WorkerFigures(BaseModel):
    worker: int
    subtasks: int
    cpu: float
    state_bytes: int


class EventBody(BaseModel):
    at_s: float
    name: str
    kind: str
    text: str


class Overview(BaseModel):
    """Data of the overview page. `matching` of `total` queries match the search; `queries` is one page."""

    at_s: float
    version: str
    policy: str
    user: str | None
    role: str
    problems: list[str]
    streams: list[StreamFigures]
    queries: list[QueryLine]
    total: int
    matching: int
    needing_attention: int
    rate_in: float
    rate_out: float
    cpu: float
    rows_waiting: int
    state_bytes: int
    workers: list[WorkerFigures]
    events: list[EventBody]


class FigureColumns(BaseModel):
    """Metrics over time. `at` is the sample time in seconds; each other column is a metric."""

    columns: dict[str, list[float | None]]


class PolicySince(BaseModel):
    at_s: float
    policy: str


class MillHistory(FigureColumns):
    """Metrics of all queries together, and the scheduling policies with their start times."""

    policies: list[PolicySince]


class GraphNode(BaseModel):
    """Node of the running query graph, or several nodes that are drawn as one (folded).

    `queries` is the number of queries that need it. `folded` names the queries of a folded node.
    """

    id: str
    label: str
    operator: str
    role: str
    title: str
    facts: list[str]
    task: str | None
    rate: float
    cpu: float
    rows_waiting: int
    longest_wait_s: float
    state_bytes: int
    queries: int
    folded: list[str] = Field(default_factory=list)


class GraphArc(BaseModel):
    source: str
    target: str
    kind: str
    rate: float
    watermark_us: int | None


class GraphBody(BaseModel):
    """Part of the running query graph. `left_out` counts the nodes beyond the limit."""

    nodes: list[GraphNode]
    arcs: list[GraphArc]
    components: int
    left_out: int
    shared_cpu: float
    alone_cpu: float


class ComponentLine(BaseModel):
    """Connected component of the query graph: queries that share streams or operators."""

    index: int
    streams: list[str]
    nodes: int
    queries: int
    cpu: float


class StoredSliceBody(BaseModel):
    subtask: int
    worker: int | None
    part: str
    rows: int
    bytes: int
    earliest_us: int
    latest_us: int
    wanted: dict[str, int]


class CutsBody(BaseModel):
    subtask: int
    part: str
    rate: float
    finest: list[float]
    cheapest: list[float]
    used: list[float]
    expected_rows: float


class CutMoveBody(BaseModel):
    """Change of the slice borders in a join's state. State slices hold the rows between two ages.

    `part` names the part of the state; `used` has the ages of the new borders in seconds.
    """

    at_s: float
    subtask: int
    part: str
    used: list[float]


class SliceChain(BaseModel):
    """State slices of one task's joins: rows between two ages, as of the task's last checkpoint.

    `moves` has earlier slice borders (ages at which slices end). `reaches` has the longest join window of
    each query, in seconds.
    """

    task: str
    subtasks: int
    queries: list[str]
    slices: list[StoredSliceBody]
    cuts: list[CutsBody]
    reaches: dict[str, float]
    moves: list[CutMoveBody]


class PolicyLine(BaseModel):
    """Scheduling policy: the metric that it minimises, and its rule."""

    name: str
    aim: str
    rule: str


class TaskPriority(BaseModel):
    """Task with its position in the scheduling order. The position is None if no rows are pending."""

    task: str
    queries: list[str]
    place: int | None
    priority: float | None
    why: str
    rows_waiting: int
    longest_wait_s: float
    overhead_ms: float
    row_us: float
    per_row: float
    cpu: float


class Policies(BaseModel):
    policy: str
    components: dict[str, str]
    policies: list[PolicyLine]
    tasks: list[TaskPriority]


class PlanRequest(BaseModel):
    """Load to simulate: rows per second by stream, scheduling policies, and optional new queries."""

    rates: dict[str, float]
    policies: list[str] = Field(min_length=1, max_length=4)
    cores: int = Field(default=2, ge=1, le=256)
    seconds: float = Field(default=30, ge=1, le=120)
    text: str = Field(default="", max_length=100_000)


class PlanAnswer(BaseModel):
    verdict: list[str]
    outcomes: list[dict[str, Any]]


class TokenLine(BaseModel):
    name: str
    role: str
    names: list[str]


class TokenRequest(BaseModel):
    name: str = Field(min_length=1, max_length=100)
    role: str
    names: list[str] = Field(default_factory=list)


class MadeToken(BaseModel):
    """New token, shown only once."""

    token: str


class FunctionWord(BaseModel):
    """Function with its call syntax, for completion in the editor."""

    name: str
    call: str


class ColumnWord(BaseModel):
    name: str
    type: str


class RelationWord(BaseModel):
    name: str
    kind: str
    columns: list[ColumnWord]


class EditorWords(BaseModel):
    """Completions for the editor of statements: words of the language and names of the catalog."""

    keywords: list[str]
    types: list[str]
    functions: list[FunctionWord]
    relations: list[RelationWord]


class PlanPreview(BaseModel):
    """Preview of statements: their plan, and the operators that running queries would share."""

    plan: str
    queries: list[str]
    operators: int
    running_already: int
    shares_with: list[str]
