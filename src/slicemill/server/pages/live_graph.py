"""Running query graph with its rates: the whole graph, a component, or a query's ancestors.

Large graphs are folded in two steps. First, stateless operators that only one query uses are merged into the
node of that query. Then, queries that read from the same shared nodes are merged into one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.explain.text import describe_node, is_lookup_arc, operator_name, role_of
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.protocol import Role
from slicemill.operators.specs import QueryResults, Source
from slicemill.server.sampling import MillSample, TaskSample, announced_watermark
from slicemill.time import END

_FACTS = 3
_READABLE = 24  # number of nodes that are readable on a laptop screen


class FoldMode(StrEnum):
    NOTHING = "nothing"
    TAILS = "tails"  # the stateless operators of one query are merged into the node of the query
    GROUPS = "groups"  # queries with the same shared inputs are merged into one node


@dataclass(frozen=True, eq=False)
class GraphIndex:
    """Index of a query graph: the queries that need each node, and its connected component.

    `needed_by` has the queries that need a node as a bit set, `component` the number of its component.
    """

    graph: QueryGraph
    queries: tuple[str, ...]
    needed_by: Mapping[str, int]
    component: Mapping[str, int]

    def is_private(self, node_id: str) -> bool:
        """Return True if at most one query needs the node.

        Sources are never private, because later queries may read them.
        """
        one = self.needed_by[node_id].bit_count() <= 1
        return one and not isinstance(self.graph[node_id].operator, Source)

    def names(self, bits: int) -> list[str]:
        return [name for index, name in enumerate(self.queries) if bits >> index & 1]


def index_of(graph: QueryGraph) -> GraphIndex:
    """Return the index of a query graph, cached per plan."""
    return _index(_GraphKey(graph))


@dataclass(frozen=True, eq=False)
class _GraphKey:
    """Cache key of a query graph, which is its identity, because plans are immutable."""

    graph: QueryGraph

    def __hash__(self) -> int:
        return id(self.graph)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _GraphKey) and other.graph is self.graph


@lru_cache(maxsize=2)
def _index(key: _GraphKey) -> GraphIndex:
    graph = key.graph
    queries = tuple(node.id for node in graph if isinstance(node.operator, QueryResults))
    needed = dict.fromkeys(graph.nodes, 0)
    for index, name in enumerate(queries):
        needed[name] = 1 << index
    for node in reversed(list(graph)):
        for source in node.inputs:
            needed[source] |= needed[node.id]
    component = {node: index for index, part in enumerate(graph.components()) for node in part}
    return GraphIndex(graph, queries, needed, component)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNode:
    """Node of the drawn graph: one operator, or all operators that only the `folded` queries use."""

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
    folded: list[str]


@dataclass(frozen=True, slots=True)
class LiveArc:
    source: str
    target: str
    kind: str
    rate: float
    watermark_us: int | None


@dataclass(frozen=True, slots=True)
class LiveGraph:
    """Part of the running query graph. `left_out` counts the nodes beyond the limit.

    `alone_cpu` is the number of cores that the tasks of the query use, `shared_cpu` the query's share of
    these cores.
    """

    nodes: list[LiveNode]
    arcs: list[LiveArc]
    components: int
    left_out: int
    shared_cpu: float
    alone_cpu: float


@dataclass(frozen=True, slots=True)
class GraphComponent:
    index: int
    streams: list[str]
    nodes: int
    queries: int
    cpu: float


def components_of(mill: Mill, sample: MillSample) -> list[GraphComponent]:
    """Return the connected components of the graph, by descending number of queries."""
    index = index_of(mill.running.plan.graph)
    members: dict[int, list[Node]] = {}
    for node in mill.running.plan.graph:
        members.setdefault(index.component[node.id], []).append(node)
    cpu: dict[int, float] = {}
    for task in mill.dispatcher.running.tasks:
        position = index.component.get(task.plan.task.nodes[0], -1)
        cpu[position] = cpu.get(position, 0.0) + (
            sample.tasks[task.id].cpu if task.id in sample.tasks else 0.0
        )
    found = [
        GraphComponent(
            position,
            sorted({node.operator.stream for node in nodes if isinstance(node.operator, Source)}),
            len(nodes),
            sum(isinstance(node.operator, QueryResults) for node in nodes),
            cpu.get(position, 0.0),
        )
        for position, nodes in members.items()
    ]
    return sorted(found, key=lambda one: (-one.queries, one.index))


class LiveGraphReader:
    """Reader of a part of the running query graph, with the metrics of a sample."""

    def __init__(self, mill: Mill, sample: MillSample) -> None:
        self._mill = mill
        self._sample = sample
        self._index = index_of(mill.running.plan.graph)
        self._tasks = {
            node: task.id for task in mill.dispatcher.running.tasks for node in task.plan.task.nodes
        }
        self._logs = {node: name for name, node in mill.running.plan.graph.streams.items()}
        self._inputs = {task.id: task.input_watermarks().values() for task in mill.dispatcher.running.tasks}

    def read(
        self,
        query: str | None = None,
        component: int | None = None,
        fold: FoldMode | None = None,
        limit: int = 150,
    ) -> LiveGraph:
        """Return a query's ancestors, a component, or all nodes.

        The nodes are folded if requested or too large.
        """
        index, graph = self._index, self._mill.running.plan.graph
        chosen = [node.id for node in graph]
        if query is not None:
            if query not in graph.nodes:
                raise SlicemillError(
                    f"{query} is an ad hoc query, so it is not in the graph of continuous queries"
                )
            wanted = graph.ancestors(query)
            chosen = [node for node in chosen if node in wanted]
        elif component is not None:
            chosen = [node for node in chosen if index.component[node] == component]
        stands_for = self._folding(chosen, fold, limit, query)
        kept = [node for node in chosen if stands_for.get(node, node) == node]
        groups = sorted(set(stands_for.values()) - set(kept))
        left_out = max(0, len(kept) + len(groups) - limit)
        if left_out:
            kept = self._most_shared(kept, max(1, limit - len(groups)))
            groups = groups[: limit - len(kept)]
        shown = {*kept, *groups}
        tails: dict[str, list[str]] = {}
        for node, stands in stands_for.items():
            if stands != node:
                tails.setdefault(stands, []).append(node)
        nodes = [self._node(graph[node], tails.get(node, ())) for node in kept]
        nodes += [self._group(group, stands_for) for group in groups]
        shared, alone = self._costs(query) if query is not None else (0.0, 0.0)
        arcs = self._arcs(chosen, stands_for, shown)
        return LiveGraph(nodes, arcs, len(set(index.component.values())), left_out, shared, alone)

    def _folding(
        self, chosen: Sequence[str], fold: FoldMode | None, limit: int, query: str | None
    ) -> dict[str, str]:
        """Return the node that represents each folded (merged) node.

        Without `fold`, the graph is folded only as far as `limit` requires.
        """
        if fold is None and query is not None:
            fold = FoldMode.NOTHING
        if fold is FoldMode.NOTHING or (fold is None and len(chosen) <= _READABLE):
            return {}
        if fold is FoldMode.GROUPS:
            return self._grouped(chosen)
        tails = self._tails(chosen)
        if fold is None and len(chosen) - sum(node != own for node, own in tails.items()) > limit:
            return self._grouped(chosen)
        return tails

    def _tails(self, chosen: Iterable[str]) -> dict[str, str]:
        """Merge the stateless operators after a query's last stateful operator into the query's node.

        A stateless operator upstream of a stateful operator is not folded, because the query's node would
        then precede its own operators.
        """
        index = self._index
        found: dict[str, str] = {}
        consumers: dict[str, list[str]] = {}
        for consumer in index.graph:
            for source in consumer.inputs:
                consumers.setdefault(source, []).append(consumer.id)
        for node in reversed(list(chosen)):
            foldable = index.is_private(node) and role_of(index.graph[node]) in (Role.STATELESS, Role.SINK)
            if foldable and all(reader in found for reader in consumers.get(node, ())):
                found[node] = index.names(index.needed_by[node])[0] if index.needed_by[node] else node
        return found

    def _grouped(self, chosen: Iterable[str]) -> dict[str, str]:
        """Map each node that only one query uses to a group: queries with the same shared inputs."""
        index, graph = self._index, self._mill.running.plan.graph
        private = {node for node in chosen if index.is_private(node)}
        parents: dict[int, set[str]] = {}
        for node in private:
            own = parents.setdefault(index.needed_by[node], set())
            own.update(source for source in graph[node].inputs if source not in private)
        groups = {bits: f"fold {' + '.join(sorted(shared))}" for bits, shared in parents.items()}
        return {node: groups[index.needed_by[node]] for node in private}

    def _most_shared(self, nodes: Sequence[str], limit: int) -> list[str]:
        index = self._index
        most = sorted(nodes, key=lambda node: -index.needed_by[node].bit_count())[:limit]
        chosen = set(most)
        return [node for node in nodes if node in chosen]

    def _task(self, node: str) -> TaskSample | None:
        return self._sample.tasks.get(self._tasks.get(node, ""))

    def _rate(self, node: str) -> float:
        operator = self._mill.running.plan.graph[node].operator
        if isinstance(operator, Source):
            stream = self._sample.streams.get(operator.stream)
            return stream.rate if stream is not None else 0.0
        task = self._task(node)
        return task.node_rates.get(node, 0.0) if task is not None else 0.0

    def _node(self, node: Node, tail: Sequence[str]) -> LiveNode:
        graph, task = self._mill.running.plan.graph, self._task(node.id)
        words = describe_node(node, graph)
        facts = [f"{what} {text}" for what, text in words.facts[:_FACTS]]
        for operator in tail:  # these operators are drawn as a part of the node
            own = describe_node(graph[operator], graph)
            facts.append(f"{own.title.lower()} {', '.join(text for _, text in own.facts[:1])}".strip())
        return LiveNode(
            id=node.id,
            label=node.name,
            operator=operator_name(node.operator),
            role=role_of(node).value,
            title=words.title,
            facts=facts,
            task=self._tasks.get(node.id),
            rate=self._rate(node.id),
            cpu=task.cpu if task is not None else 0.0,
            rows_waiting=task.rows_waiting if task is not None else 0,
            longest_wait_s=task.longest_wait_s if task is not None else 0.0,
            state_bytes=task.state_bytes if task is not None else 0,
            queries=self._index.needed_by[node.id].bit_count(),
            folded=[],
        )

    def _group(self, group: str, stands_for: Mapping[str, str]) -> LiveNode:
        members = [node for node, own in stands_for.items() if own == group]
        bits = 0
        for node in members:
            bits |= self._index.needed_by[node]
        queries = self._index.names(bits)
        tasks = {self._tasks[node] for node in members if node in self._tasks}
        samples = [self._sample.tasks[task] for task in tasks if task in self._sample.tasks]
        label = queries[0] if len(queries) == 1 else f"{len(queries)} queries"
        return LiveNode(
            id=group,
            label=label,
            operator="folded",
            role="sink",
            title=label,
            facts=[f"{len(members)} operators that no other query uses"],
            task=next(iter(tasks)) if len(tasks) == 1 else None,
            rate=sum(self._rate(name) for name in queries),
            cpu=max((task.cpu for task in samples), default=0.0),
            rows_waiting=max((task.rows_waiting for task in samples), default=0),
            longest_wait_s=max((task.longest_wait_s for task in samples), default=0.0),
            state_bytes=sum(task.state_bytes for task in samples),
            queries=len(queries),
            folded=queries,
        )

    def _arcs(self, chosen: Iterable[str], stands_for: Mapping[str, str], shown: set[str]) -> list[LiveArc]:
        graph = self._mill.running.plan.graph
        found: dict[tuple[str, str], LiveArc] = {}
        for target in chosen:
            for port, source in enumerate(graph[target].inputs):
                ends = stands_for.get(source, source), stands_for.get(target, target)
                if ends[0] == ends[1] or not shown.issuperset(ends) or ends in found:
                    continue
                # An arc uses the rate of its target if its source node has no measured rate.
                rate = self._rate(source) or self._rate(target)
                kind = "lookup" if is_lookup_arc(graph, target, port) else "tuples"
                found[ends] = LiveArc(*ends, kind, rate, self._watermark(source))
        return list(found.values())

    def _watermark(self, node: str) -> int | None:
        operator = self._mill.running.plan.graph[node].operator
        if isinstance(operator, Source):
            stream = self._sample.streams.get(operator.stream)
            return stream.watermark_us if stream is not None else None
        log = self._logs.get(node)
        if log is not None and log in self._mill.dispatcher.running.writers:
            found = announced_watermark(self._mill, log)
        else:
            found = min(self._inputs.get(self._tasks.get(node, ""), ()), default=0)
        return found if 0 < found < END else None

    def _costs(self, query: str) -> tuple[float, float]:
        """Return a query's share of the cores that its tasks use, and the total of these cores."""
        index, shared, alone = self._index, 0.0, 0.0
        behind = self._mill.running.plan.graph.ancestors(query)
        needed = {self._tasks[node] for node in behind if node in self._tasks}
        for task in self._mill.dispatcher.running.tasks:
            if task.id in needed and task.id in self._sample.tasks:
                bits = 0
                for node in task.plan.task.nodes:
                    bits |= index.needed_by.get(node, 0)
                cpu = self._sample.tasks[task.id].cpu
                alone += cpu
                shared += cpu / max(1, bits.bit_count())
        return shared, alone
