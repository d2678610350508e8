"""Panes in two phases: the task that stores rows makes entries of them as well, a unit's buckets merge these.

    one phase     rows ─► log ─► every bucket reads all rows, and puts its own into panes
    two phases    rows ─► log
                      └─► entries of each chunk ─► every bucket reads entries, and merges its own

Without keys there is one bucket, which has all the work in one phase; in two, all tasks that read the source
have a part of it. Rows are stored in any case: other queries read them, and so does this one where a chunk
has no entries, or those of other queries than there are now.

A recipe is all that decides which entries become of a chunk's rows. `plan.early_cost` says when it pays.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from slicemill.esl.catalog import TimestampKind
from slicemill.esl.expression import Expr, columns_of, conjunction
from slicemill.esl.relation import AggregateCall
from slicemill.esl.render import render
from slicemill.plan.graph import Node, QueryGraph
from slicemill.plan.operators import RelationAggregate, SharedWindows, Source, WindowMember
from slicemill.plan.panes import edge_grids
from slicemill.plan.units import Unit, log_of

# Entries that were stored in another form than they are read in now have another digest.
_FORM = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """`conditions` are those of members, each once, in their order; None takes every tuple.

    `calls` have the place of the condition whose tuples they are about.
    """

    keys: tuple[Expr, ...]
    conditions: tuple[Expr | None, ...]
    calls: tuple[tuple[int, AggregateCall], ...]
    edges: tuple[tuple[int, int], ...]

    @property
    def digest(self) -> str:
        """The same in every process that makes or reads entries by this recipe."""
        texts = [
            [f"{render(key)} as {key.type}" for key in self.keys],
            ["" if condition is None else render(condition) for condition in self.conditions],
            [f"{place}: {call.name}({_arguments(call)})" for place, call in self.calls],
            self.edges,
            _FORM,
        ]
        return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the stream that it reads."""
        conditions = [condition for condition in self.conditions if condition is not None]
        arguments = [argument for _, call in self.calls for argument in call.arguments]
        return frozenset[str]().union(*(columns_of(expr) for expr in (*self.keys, *conditions, *arguments)))


def _arguments(call: AggregateCall) -> str:
    return ", ".join(f"{render(argument)} as {argument.type}" for argument in call.arguments)


def calls_read(member: WindowMember) -> list[AggregateCall]:
    """The calls of GROUP BY over windows whose results somebody reads."""
    assert isinstance(member.operator, RelationAggregate)
    read = {column.name for column in member.columns}
    return [call for call in member.operator.calls if call.columns[0].name in read]


def why_rows(node: Node, graph: QueryGraph) -> str | None:
    """Why the panes of shared windows can only be made of rows by their unit; None if tasks that read can."""
    shared, source = node.operator, graph[node.inputs[0]].operator
    assert isinstance(shared, SharedWindows)
    if not isinstance(source, Source):
        return "tuples are not those of a source"
    if source.kind is not TimestampKind.EXTERNAL:
        return "tuples get their timestamps when all are stored"
    if source.slack_us:
        return "tuples are put in order after they were read (SLACK)"
    if any(not isinstance(member.operator, RelationAggregate) for member in shared.members):
        return "results with OVER stand beside tuples"
    if not all(member.partial for member in shared.members):
        return "some aggregates need all values"
    return None


def recipe_of(node: Node, graph: QueryGraph) -> Recipe | None:
    """The recipe of shared windows; None if their panes are made of rows."""
    shared = node.operator
    if not isinstance(shared, SharedWindows) or why_rows(node, graph) is not None:
        return None
    wanted = [conjunction(member.conditions) for member in shared.members]
    conditions = tuple(dict.fromkeys(wanted))
    calls = dict.fromkeys(
        (conditions.index(condition), _nameless(call))
        for member, condition in zip(shared.members, wanted, strict=True)
        for call in calls_read(member)
    )
    edges = edge_grids(window for member in shared.members for window in member.windows)
    return Recipe(shared.keys, conditions, tuple(calls), edges)


def _nameless(call: AggregateCall) -> AggregateCall:
    """The same for all queries that compute it, whatever they call it."""
    return replace(call, columns=tuple(replace(column, name="") for column in call.columns))


def recipe_of_unit(unit: Unit, graph: QueryGraph) -> tuple[str, Recipe] | None:
    """The log that a unit reads and the recipe of its windows, if its panes can be made early."""
    for node_id in unit.nodes:
        recipe = recipe_of(graph[node_id], graph)
        if recipe is not None:
            log = log_of(graph[graph[node_id].inputs[0]], graph)
            assert log is not None, "a source has a log"
            return log, recipe
    return None
