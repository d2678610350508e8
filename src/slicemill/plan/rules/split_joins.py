"""split_joins: a join of three or more streams over windows of time becomes a row of joins of two (S2, S25).

    A, B, C ─ ⋈ A.k = B.k AND B.j = C.j      A ─┬─ ⋈ k = k ─┬─ ⋈ B.j = j ─ in order
                                             B ─┘        C ─┘

A joined tuple has the timestamp of its latest member, and carries all of them: it can be met for as long as
each member is in its own stream's window. The pairs of a step are those that agree on the conditions which
can be tested there. Streams are taken in an order in which each has a key in common with those before it, if
there is one; the last step puts the results in the order of one join of all streams.

Windows that count rows stay as they are: a joined tuple does not know how many tuples have come since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.expression import Expr, columns_of, conjuncts
from slicemill.esl.types.query import FrameUnit, Window
from slicemill.esl.types.schema import BIGINT, TIMESTAMP, Column, Schema
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import InOrder, JoinMember, SharedJoin, WindowJoin
from slicemill.operators.multijoin.form import forms_of_member
from slicemill.plan.rules.join_parts import Places, input_of, keys_of, places_of
from slicemill.plan.rules.multi_joins import joined_member
from slicemill.plan.rules.sharing import columns_read


def split_joins(graph: QueryGraph, catalog: Catalog) -> QueryGraph:  # noqa: ARG001
    nodes: dict[str, Node] = {}
    for node in graph:
        join = node.operator
        if (
            isinstance(join, WindowJoin)
            and len(node.inputs) > 2
            and all(window.frame is FrameUnit.RANGE for window in join.windows)
        ):
            forms = forms_of_member(joined_member(graph, node, join))
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
        """One join after the other, and the order at the end, under the name of the join."""
        places = places_of(self.graph, self.node)
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
        """The streams, each with a key in common with those before it where that is possible."""
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
        """The join of what has been joined so far, or of the first stream, with one more."""
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
        )
        ends = [(f"{self.join.aliases[of]}._ts", self.join.windows[of].extent) for of in taken]
        deadlines = tuple((name, extent) for name, extent in ends if extent is not None) if before else ()
        schema = Schema(tuple(column for column, _, _ in columns))
        behind = f" with {self.join.aliases[port]}"
        return replace(
            self.node,
            id=self.node.id + behind,
            label=self.node.name + behind,
            operator=SharedJoin(keys, (member,), deadlines),
            inputs=(left.id, right.id),
            schema=schema,
        )


def _between(places: Places, taken: Sequence[int], port: int) -> Places:
    """Columns of the streams joined so far under the names they have there, and one more stream's own."""
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
    """No joined tuple can be met for longer than its shortest window after its latest member."""
    lengths = [window.extent for window in windows if window.extent is not None]
    return Window(FrameUnit.RANGE, min(lengths, default=None))
