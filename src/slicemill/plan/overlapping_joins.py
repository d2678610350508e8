"""State sharing between joins over overlapping sets of streams.

    a ─┐                                              a ─┐
    b ─┼─ joins of a, b and c on k ── q1              b ─┤                             ┌─ q1: a, b, c
    c ─┘                                              c ─┼─ joins of a, b and c on k ──┼─ q2: a, b, d
    a, b, d ── joins of a, b and d on k ── q2         d ─┤                             └─ q3: a, b
    a, b ── joins of a and b on k ── q3

Each statement is planned alone, so its join first has its own node, named after inputs and keys. This module
merges such nodes into one of them, the merge target, whose set of inputs grows. When a query is added, the
stored state determines its merge target. Later plans read this choice from the journal, which stores the
queries of each task. So state never moves when other queries are added or removed. A merge target keeps the
name of its first join even after that join is dropped.

* A new query over {a, b, d} is merged into the node of {a, b, c}. It finds the stored rows of a and b, so its
  results are complete sooner (S23). The node starts to read and store d.
* The state of a dropped query is dropped unless other queries use it. State and input of d are dropped with
  the last query that joins d.
* Queries over other streams do not delay results (`operators.join.state.JoinLine`).

Outer, semi and anti joins of two streams are never merged. If their node also contains joins that run in
another task, these joins are first split off (`_split_tasks`).

Joins that probe each other's state must run in the same subtask at the same time, so they share one node. The
node can be partitioned if all its joins use the same key. Therefore a join is merged only if it has a single
equality, and if its keys on common streams are the keys of the target. It must read declared streams, each of
them once, so that a node never waits for its own results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slicemill.catalog.expressions import Expr
from slicemill.functions.render import render
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.form import shared_state_share
from slicemill.operators.join.spec import JoinMember, SharedJoin, is_two_way, one_key
from slicemill.operators.specs import Part, Source, member_of
from slicemill.plan.rules.multi_joins import states_id
from slicemill.plan.rules.sharing import content_of
from slicemill.plan.tasks import Task, log_of

# A join is merged only if at least this share of its state is then shared.
WORTH = 0.5


@dataclass(frozen=True, slots=True)
class RunningJoinState:
    """Join state of a running task: the keys of its inputs.

    `open` is True if the task accepts more inputs. The keys of removed inputs are kept, because the first
    query of the task may be registered again.
    """

    keys: Mapping[str, str]
    open: bool


@dataclass(frozen=True, slots=True)
class TaskAssignments:
    """Running tasks: the task of each log, and join state by task."""

    task_of: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, RunningJoinState] = field(default_factory=dict)


NOTHING_RUNS = TaskAssignments()


@dataclass(frozen=True)
class _MovableJoin:
    """Join node that can be merged into another node.

    `sources` maps the names of its inputs to nodes.
    """

    node: Node
    task: Task
    members: tuple[JoinMember, ...]
    sources: Mapping[str, str]
    keys: Mapping[str, Expr]

    @property
    def is_multi_join(self) -> bool:
        return not is_two_way(self.node.operator)


@dataclass
class _MergeTarget:
    """Node into which other joins are merged."""

    name: str
    open: bool = True
    known: Mapping[str, str] = field(default_factory=dict)  # keys of all inputs, from the journal
    inside: list[_MovableJoin] = field(default_factory=list)

    def fits(self, one: _MovableJoin) -> bool:
        """Return True if at least two inputs match and no keys differ."""
        there = {name: render(key) for other in self.inside for name, key in other.keys.items()}
        keys = {**self.known, **there}
        same = all(keys.get(name, render(key)) == render(key) for name, key in one.keys.items())
        return same and len(there.keys() & one.keys.keys()) > 1

    def sharing_gain(self, one: _MovableJoin) -> float:
        there = [member for other in self.inside for member in other.members]
        return shared_state_share(one.members, there)


def logs_read(task: Task, graph: QueryGraph) -> dict[str, frozenset[str]]:
    """Map each output log of a task to the logs it depends on.

    For a merged node, only the inputs of the join that writes the log count.
    """
    behind: dict[str, frozenset[str]] = {}  # by node
    for node_id in task.nodes:
        read = [_source_logs(source, graph, behind) for source in _sources(graph[node_id], graph)]
        behind[node_id] = read[0] if len(read) == 1 else frozenset().union(*read)
    return {log: behind[root] for root, log in task.outputs}


def _source_logs(source: str, graph: QueryGraph, behind: Mapping[str, frozenset[str]]) -> frozenset[str]:
    log = log_of(graph[source], graph)
    return behind.get(source, frozenset()) if log is None else frozenset([log])


def _sources(node: Node, graph: QueryGraph) -> Sequence[str]:
    shared = graph[node.inputs[0]] if isinstance(node.operator, Part) else None
    if not isinstance(node.operator, Part) or not shared or not isinstance(shared.operator, SharedJoin):
        return node.inputs
    member = member_of(shared.operator, node.operator)
    by_name = dict(zip(shared.operator.inputs, shared.inputs, strict=True))
    return [by_name[name] for name in member.inputs]


def join_keys_of(
    task: Task, graph: QueryGraph, before: Mapping[str, str] | None = None
) -> dict[str, str] | None:
    """Return the join key of each input of a task.

    Keys are rendered as in the journal. Keys in `before` are kept. The result is None for a task whose joins
    cannot be merged.
    """
    movable = next((one for one in _movable_joins(graph, task) if one.is_multi_join), None)
    if movable is None:
        return None
    return {**(before or {}), **{name: render(key) for name, key in movable.keys.items()}}


def merge_overlapping_joins(
    graph: QueryGraph, tasks: tuple[Task, ...], placed: TaskAssignments = NOTHING_RUNS
) -> tuple[QueryGraph, tuple[Task, ...]]:
    """Merge joins over overlapping sets of streams into shared nodes."""
    graph, tasks = _split_tasks(graph, tasks, placed)
    movable = [one for task in tasks for one in _movable_joins(graph, task)]
    if not any(one.is_multi_join for one in movable):
        return graph, tasks
    houses: dict[str, _MergeTarget] = {}
    new: list[_MovableJoin] = []
    for one in movable:
        home = _current_task(graph, one, placed)
        if home is None:
            new.append(one)
        elif home != one.task.id or one.is_multi_join:
            known = placed.states.get(home)
            if home not in houses:
                houses[home] = (
                    _MergeTarget(home) if known is None else _MergeTarget(home, known.open, known.keys)
                )
            house = houses[home]
            house.inside.append(one)
    # Two-way joins come last: they cannot become a merge target, and sharing is optional for them.
    for one in sorted(new, key=lambda one: not one.is_multi_join):
        best = _best_target(houses, one)
        if best is None and one.is_multi_join:
            best = houses.setdefault(one.task.id, _MergeTarget(one.task.id))
        if best is not None:
            best.inside.append(one)
    return _apply_merges(graph, tasks, [house for house in houses.values() if _has_merged_joins(house)])


def _split_tasks(
    graph: QueryGraph, tasks: tuple[Task, ...], placed: TaskAssignments
) -> tuple[QueryGraph, tuple[Task, ...]]:
    """Split tasks if only some of their two-way joins run elsewhere."""
    found: list[Task] = []
    for task in tasks:
        away = _logs_in_other_tasks(graph, task, placed)
        if away and len(away) < len(task.outputs):
            graph, *parts = _split(graph, task, away)
            found += parts
        else:
            found.append(task)
    return graph, tuple(found)


def _logs_in_other_tasks(graph: QueryGraph, task: Task, placed: TaskAssignments) -> set[str]:
    """Return the logs of a task's joins that run in another task.

    If all joins of the task run elsewhere, new logs are included.
    """
    if len(task.stateful_nodes) != 1 or not is_two_way(graph[task.stateful_nodes[0]].operator):
        return set()
    homes = {log: placed.task_of.get(log, "") for _, log in task.outputs}
    away = {log for log, home in homes.items() if home != task.id and home in placed.states}
    judging = {log for root, log in task.outputs if _needs_match_flags(graph, task, root)}
    if not judging and task.id not in homes.values():
        return away and set(homes)
    return away - judging


def _needs_match_flags(graph: QueryGraph, task: Task, root: str) -> bool:
    """Return True if a result depends on whether rows have matched."""
    (node_id,) = task.stateful_nodes
    join, members = graph[node_id].operator, _members_of(graph, node_id, [root])
    assert isinstance(join, SharedJoin)
    return replace(join, members=tuple(m for m in join.members if m.name in members)).tracks_matches


def _members_of(graph: QueryGraph, node_id: str, roots: Sequence[str]) -> set[str]:
    parts = (graph[one] for root in roots for one in graph.ancestors(root))
    return {p.operator.member for p in parts if isinstance(p.operator, Part) and p.inputs[0] == node_id}


def _split(graph: QueryGraph, task: Task, away: Collection[str]) -> tuple[QueryGraph, Task, Task]:
    """Split a task and its join into two tasks.

    The second task writes the logs in `away`. The first task writes all other logs.
    """
    (node_id,) = task.stateful_nodes
    join, guests = graph[node_id].operator, f"{node_id} of guests"
    assert isinstance(join, SharedJoin)
    outputs = [[one for one in task.outputs if (one[1] in away) is moving] for moving in (False, True)]
    moving = _members_of(graph, node_id, [root for root, _ in outputs[1]])
    nodes: dict[str, Node] = {}
    for node in graph:
        if node.id == node_id:
            for name, there in ((node_id, False), (guests, True)):
                members = tuple(member for member in join.members if (member.name in moving) is there)
                nodes[name] = replace(node, id=name, operator=replace(join, members=members))
        elif isinstance(node.operator, Part) and node.operator.member in moving:
            nodes[node.id] = replace(node, inputs=(guests,))
        else:
            nodes[node.id] = node
    parted = QueryGraph(nodes, graph.streams)
    inside = {*task.nodes, guests}
    tasks = []
    for name, kept, own in ((task.id, node_id, outputs[0]), (guests, guests, outputs[1])):
        behind = {one for root, _ in own for one in parted.ancestors(root)} & inside
        ordered = tuple(one for one in nodes if one in behind)
        tasks.append(Task(name, ordered, task.inputs, tuple(own), (kept,)))
    return parted, tasks[0], tasks[1]


def _has_merged_joins(house: _MergeTarget) -> bool:
    return any(one.task.id != house.name for one in house.inside)


def _current_task(graph: QueryGraph, one: _MovableJoin, placed: TaskAssignments) -> str | None:
    """Return the task that runs the queries of a node.

    The result is None if the queries are new or redefined.
    """
    outputs = [log for root, log in one.task.outputs if one.node.id in graph.ancestors(root)]
    home = next((placed.task_of[log] for log in outputs if log in placed.task_of), None)
    if home is None or home == one.task.id:
        return home
    keys = placed.states[home].keys if home in placed.states else {}
    return home if any(keys.get(name) == render(key) for name, key in one.keys.items()) else None


def _best_target(houses: Mapping[str, _MergeTarget], one: _MovableJoin) -> _MergeTarget | None:
    """Return the merge target that saves most state, or None.

    A node whose own task is a merge target always stays there.
    """
    if one.task.id in houses:
        return houses[one.task.id]
    possible = [house for house in houses.values() if house.open and house.fits(one)]
    best = max(possible, key=lambda house: (house.sharing_gain(one), house.name), default=None)
    return best if best is not None and best.sharing_gain(one) >= WORTH else None


def _movable_joins(graph: QueryGraph, task: Task) -> Iterator[_MovableJoin]:
    if len(task.stateful_nodes) == 1:
        found = _movable_join(graph, graph[task.stateful_nodes[0]], task)
        if found is not None:
            yield found


def _movable_join(graph: QueryGraph, node: Node, task: Task) -> _MovableJoin | None:
    """Return the node as a movable join, or None.

    A movable join reads distinct declared streams, with one key and RANGE windows.
    """
    join = node.operator
    sources = [graph[source] for source in node.inputs]
    if not isinstance(join, SharedJoin) or not graph.has_parts(node.id):
        return None
    declared = all(isinstance(source.operator, Source) for source in sources)
    if not declared or len({source.id for source in sources}) != len(sources):
        return None
    names = [content_of(graph, source) for source in sources]
    keys: dict[str, Expr] = {}
    members, inputs = join.members, join.inputs
    if join.two_way:
        if join.counts_rows or join.expires_rows or join.deadlines or join.tracks_matches:
            return None
        inputs = tuple(names)
        members = tuple(replace(member, inputs=inputs) for member in members)
    for member in members:
        own = one_key(member)
        if own is None or any(keys.setdefault(name, key) != key for name, key in own.items()):
            return None
    return _MovableJoin(node, task, members, dict(zip(inputs, node.inputs, strict=True)), keys)


def _apply_merges(
    graph: QueryGraph, tasks: tuple[Task, ...], houses: list[_MergeTarget]
) -> tuple[QueryGraph, tuple[Task, ...]]:
    made = {house.name: _build_merged_node(graph, house) for house in houses}
    moved = {one.node.id: made[house.name] for house in houses for one in house.inside}
    nodes: dict[str, Node] = {node.id: node for node in graph if isinstance(node.operator, Source)}
    for node in graph:
        if node.id in moved:
            nodes.setdefault(moved[node.id].id, moved[node.id])
        elif isinstance(node.operator, Part) and node.inputs[0] in moved:
            nodes[node.id] = replace(node, inputs=(moved[node.inputs[0]].id,))
        else:
            nodes.setdefault(node.id, node)
    position = {node_id: number for number, node_id in enumerate(nodes)}
    home = {one.task.id: house for house in houses for one in house.inside}
    found: dict[str, Task] = {}
    for task in tasks:
        if task.id not in home:
            found[task.id] = task
        elif home[task.id].name not in found:
            found[home[task.id].name] = _task_of_target(home[task.id], made[home[task.id].name], position)
    return QueryGraph(nodes, graph.streams), tuple(found.values())


def _build_merged_node(graph: QueryGraph, house: _MergeTarget) -> Node:
    """Build the merged node of a target."""
    sources = dict(sorted({name: s for one in house.inside for name, s in one.sources.items()}.items()))
    members = [member for one in house.inside for member in _annotate_members(house, one)]
    operator = SharedJoin(tuple(members), tuple(sources))
    first = graph[next(iter(sources.values()))]
    return Node(
        states_id(house.name), operator, tuple(sources.values()), first.schema, first.kind, house.name
    )


def _annotate_members(house: _MergeTarget, one: _MovableJoin) -> Iterator[JoinMember]:
    """Yield the members of one join, annotated with their shared state."""
    others = [member for other in house.inside if other is not one for member in other.members]
    share = f"{shared_state_share(one.members, others):.0%} "
    share += "of what it would keep by itself is kept for others too"
    for member in one.members:
        yield replace(member, why=f"{member.why}; {share}" if member.why else share)


def _task_of_target(house: _MergeTarget, node: Node, position: Mapping[str, int]) -> Task:
    own = {one.node.id for one in house.inside}
    inside = {node_id for one in house.inside for node_id in one.task.nodes if node_id not in own}
    return Task(
        house.name,
        tuple(sorted({node.id, *inside}, key=position.__getitem__)),
        tuple(sorted({log for one in house.inside for log in one.task.inputs})),
        tuple(output for one in house.inside for output in one.task.outputs),
        (node.id,),
    )
