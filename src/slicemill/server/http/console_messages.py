"""Pydantic messages of the web console's routes, described in OpenAPI."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class CauseBody(BaseModel):
    """Why a query is slow: `kind` for programs, `text` for people, and the unit or stream it is about."""

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
    """A query as the overview has it; figures are those of the last seconds.

    `lag_s` is how far its results are behind its streams, in event time; `budget` what it may give up.
    """

    name: str
    state: str
    unit: str
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
    unit_cpu: float
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
    cells: int
    cpu: float
    state_bytes: int


class EventBody(BaseModel):
    at_s: float
    name: str
    kind: str
    text: str


class Overview(BaseModel):
    """All that the overview shows; `matching` of `total` queries match the search, and some are here."""

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
    """Figures over time: `at` in seconds, and a column for each figure."""

    columns: dict[str, list[float | None]]


class PolicySince(BaseModel):
    at_s: float
    policy: str


class MillHistory(FigureColumns):
    """Of all queries together, and since when each policy decided."""

    policies: list[PolicySince]


class GraphNode(BaseModel):
    """A node of the graph that runs. `queries` counts those that need it; `folded` are the queries of a node
    that stands for what only they need."""

    id: str
    label: str
    operator: str
    role: str
    title: str
    facts: list[str]
    unit: str | None
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
    """A part of the graph: `left_out` nodes are not here."""

    nodes: list[GraphNode]
    arcs: list[GraphArc]
    components: int
    left_out: int
    shared_cpu: float
    alone_cpu: float


class ComponentLine(BaseModel):
    """A connected part of the graph, by the streams that it reads."""

    index: int
    streams: list[str]
    nodes: int
    queries: int
    cpu: float


class StoredSliceBody(BaseModel):
    cell: int
    worker: int | None
    part: str
    rows: int
    bytes: int
    earliest_us: int
    latest_us: int
    wanted: dict[str, int]


class CutsBody(BaseModel):
    cell: int
    part: str
    rate: float
    finest: list[float]
    cheapest: list[float]
    used: list[float]
    expected_rows: float


class CutMoveBody(BaseModel):
    """At some moment a part of a chain was found to be cut at these ages, in seconds."""

    at_s: float
    cell: int
    part: str
    used: list[float]


class SliceChain(BaseModel):
    """What one unit keeps, slice by slice, as of its last checkpoint; `moves` are the cuts before.

    `reaches` says how many seconds back the join of each query can meet rows.
    """

    unit: str
    cells: int
    queries: list[str]
    slices: list[StoredSliceBody]
    cuts: list[CutsBody]
    reaches: dict[str, float]
    moves: list[CutMoveBody]


class PolicyLine(BaseModel):
    """A policy: what it makes least, and who goes first by it."""

    name: str
    aim: str
    rule: str


class UnitPriority(BaseModel):
    """A unit in the order of the policy among those for which something waits; others have no place."""

    unit: str
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
    units: list[UnitPriority]


class PlanRequest(BaseModel):
    """A load to rehearse: rows a second by stream, under some policies; `text` may declare new queries."""

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
    """A token, shown once."""

    token: str


class FunctionWord(BaseModel):
    """A function, and how it is called."""

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
    """The words of ESL, and what the catalog has."""

    keywords: list[str]
    types: list[str]
    functions: list[FunctionWord]
    relations: list[RelationWord]


class PlanPreview(BaseModel):
    """How the queries of a text would run: a plan, and how many of its operators run already for others."""

    plan: str
    queries: list[str]
    operators: int
    running_already: int
    shares_with: list[str]
