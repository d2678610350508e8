"""split_joins: split n-way joins over time windows into binary joins (S2, S25).

    A, B, C ─ ⋈ A.k = B.k AND B.j = C.j      A ─┬─ ⋈ k = k ─┬─ ⋈ B.j = j ─ in order
                                             B ─┘        C ─┘

A joined tuple has the timestamp of its latest input tuple, and carries the timestamps of all input tuples. It
can match while each input tuple is in the window of its stream. Each step tests all conditions whose columns
are available. Streams are ordered so that each shares a key with a previous stream, where possible. The last
node restores the result order of a single n-way join.

Joins with ROWS windows are left unchanged: a joined tuple does not know how many tuples have arrived since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Expr, columns_of, conjuncts
from slicemill.catalog.queries import FrameUnit, Window
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.form import forms_of_member
from slicemill.operators.join.spec import InOrder, JoinMember, SharedJoin, WindowJoin
from slicemill.plan.rules.join_parts import (
    Places,
    column_inputs_of,
    input_of,
    keys_of,
    member_of_join,
    pairs_of,
)
from slicemill.plan.rules.sharing import columns_read
from slicemill.types import BIGINT, TIMESTAMP, Column, Schema


def split_joins(graph: QueryGraph, catalog: Catalog) -> QueryGraph:  # noqa: ARG001
    nodes: dict[str, Node] = {}
    for node in graph:
        join = node.operator
        if (
            isinstance(join, WindowJoin)
            and len(node.inputs) > 2
            and all(window.frame is FrameUnit.RANGE for window in join.windows)
        ):
            forms = forms_of_member(member_of_join(graph, node, join))
            why = "" if forms is None else forms.why
            nodes.update((made.id, made) for made in _Split(graph, node, join, why).nodes())
        else:
            nodes[node.id] = node
    return QueryGraph(nodes, graph.streams)


@dataclass(frozen=True)
class _Split:
    graph: QueryGraph
    node: Node
    join: WindowJoin
    why: str

    def nodes(self) -> Iterator[Node]:
        """Yield the binary joins that replace the n-way join, and a node that orders their results.

        The ordering node has the id of the n-way join.
        """
        places = column_inputs_of(self.graph, self.node)
        pending = list(conjuncts(self.join.condition))
        read = columns_read(self.graph, self.node)
        order = self._order(pending, places)
        joined: Node | None = None
        for number, port in enumerate(order[1:], start=1):
            taken = order[:number]
            here = [name for name, (of, _) in places.items() if of in (*taken, port)]
            ready = [part for part in pending if columns_of(part) <= set(here)]
            pending = [part for part in pending if part not in ready]
            wanted = read.union(*(columns_of(part) for part in pending))
            joined = self._step(joined, taken, port, ready, wanted, places)
            yield joined
        assert joined is not None
        members = tuple((f"{alias}._ts", f"{alias}._number") for alias in self.join.aliases)
        schema = replace(self.node.schema, columns=tuple(c for c in self.node.schema if c.name in read))
        operator = InOrder(members, self.why)
        yield replace(self.node, operator=operator, inputs=(joined.id,), schema=schema)

    def _order(self, conditions: Sequence[Expr], places: Places) -> list[int]:
        """Order the streams so that each stream has a join key in common with earlier streams if possible."""
        left = list(range(1, len(self.node.inputs)))
        order = [0]
        while left:
            keyed = [port for port in left if self._has_key(conditions, _between(places, order, port))]
            order.append(keyed[0] if keyed else left[0])
            left.remove(order[-1])
        return order

    def _has_key(self, conditions: Sequence[Expr], names: Places) -> bool:
        (keys, _), _ = keys_of([part for part in conditions if columns_of(part) <= set(names)], names)
        return bool(keys)

    def _step(
        self,
        before: Node | None,
        taken: Sequence[int],
        port: int,
        conditions: Sequence[Expr],
        wanted: frozenset[str],
        places: Places,
    ) -> Node:
        """Return the binary join that adds stream `port` to the streams joined so far."""
        right, right_where = input_of(self.graph, self.node, self.join, port)
        left, left_where = (before, None) if before else input_of(self.graph, self.node, self.join, taken[0])
        names = _between(places, taken, port) if before else _pair(places, taken[0], port)
        keys, residual = keys_of(conditions, names)
        columns: list[tuple[Column, int, str]] = []
        for column in self.node.schema:
            if column.name in wanted and places[column.name][1] != "_ts" and column.name in names:
                columns.append((column, *names[column.name]))
        for of in (*taken, port):
            for what, kind in (("_ts", TIMESTAMP), ("_number", BIGINT)):
                name = f"{self.join.aliases[of]}.{what}"
                own = (0, name) if before and of != port else (int(of == port), what)
                columns.append((Column(name, kind), *own))
        windows = (_shortest([self.join.windows[of] for of in taken]), self.join.windows[port])
        member = JoinMember(
            self.node.id,
            windows,
            (left_where, right_where),
            residual,
            tuple((column.name, side, own) for column, side, own in columns),
            equal=pairs_of(keys),
        )
        ends = [(f"{self.join.aliases[of]}._ts", self.join.windows[of].extent) for of in taken]
        deadlines = tuple((name, extent) for name, extent in ends if extent is not None) if before else ()
        schema = Schema(tuple(column for column, _, _ in columns))
        behind = f" with {self.join.aliases[port]}"
        return replace(
            self.node,
            id=self.node.id + behind,
            label=self.node.name + behind,
            operator=SharedJoin((member,), deadlines=deadlines),
            inputs=(left.id, right.id),
            schema=schema,
        )


def _between(places: Places, taken: Sequence[int], port: int) -> Places:
    """Map columns of the n-way join to columns of a binary join.

    Side 0 of the binary join has the rows of the streams joined so far, and side 1 the rows of stream `port`.
    """
    names: dict[str, tuple[int, str]] = {}
    for name, (of, own) in places.items():
        if of in taken:
            names[name] = (0, name)
        elif of == port:
            names[name] = (1, own)
    return names


def _pair(places: Places, left: int, right: int) -> Places:
    sides = {left: 0, right: 1}
    return {name: (sides[of], own) for name, (of, own) in places.items() if of in sides}


def _shortest(windows: Sequence[Window]) -> Window:
    """Return the shortest of the windows of joined streams, which limits how long a joined tuple matches."""
    lengths = [window.extent for window in windows if window.extent is not None]
    return Window(FrameUnit.RANGE, min(lengths, default=None))
