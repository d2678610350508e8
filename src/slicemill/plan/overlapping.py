"""Joins over overlapping sets of streams share states: they live in one node, whose set of inputs grows.

    a ─┐                                              a ─┐
    b ─┼─ joins of a, b and c on k ── q1              b ─┤                             ┌─ q1: a, b, c
    c ─┘                                              c ─┼─ joins of a, b and c on k ──┼─ q2: a, b, d
    a, b, d ── joins of a, b and d on k ── q2         d ─┤                             └─ q3: a, b
    a, b ── joins of a and b on k ── q3

A statement is planned by itself, so its join has a node of its own at first, named by what it joins on what.
Here such nodes move into others. Which one lives where is decided when its first query comes, by what that
saves; from then on it is read from the journal, in which each unit has its queries. So whoever comes or goes
later, nobody's state moves. A node keeps the name of the join that founded it, also when that is gone.

* Who comes to {a, b, c} with a query over {a, b, d} finds the rows of a and b that are stored for others, and
  is complete the sooner (S23). d gets a state of its own, from now on.
* Who leaves takes along what nobody else wants; d's state and the reading of d go with the last who joins it.
* Queries over other streams are not waited for (`operators.multijoin.lines`).

Joins of two streams that give rows without a partner never move, though they are in one node with others of
these streams: of that node, those who live elsewhere are taken out first (`_parted`).

A node with states of its own that others could probe would have to be in the same cell as they are, at the
same time: one node says that in the simplest way. It can be split by key if all who live in it are joined on
one key, so only such joins move: each on one equality throughout, the same on the streams in common. They
read declared streams, no stream twice, so that no node can come to wait for its own results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import Expr
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.multijoin.form import saved_by_sharing
from slicemill.operators.multijoin.spec import MultiJoinMember, SharedMultiJoin, one_key
from slicemill.operators.part.spec import Part, member_of
from slicemill.operators.streams.spec import Source
from slicemill.plan.logs import log_of
from slicemill.plan.rules.multi_joins import states_id
from slicemill.plan.rules.sharing import content_of
from slicemill.plan.units import Unit

# Where a move saves less of what a join would keep by itself, it stays by itself.
WORTH = 0.5


@dataclass(frozen=True, slots=True)
class HeldStates:
    """A unit that runs: the key of each input that it joins or has joined; and can it take more inputs?

    Who founded it may come back when others have its name: an input that is gone keeps its key.
    """

    keys: Mapping[str, str]
    open: bool


@dataclass(frozen=True, slots=True)
class PlacedQueries:
    """What is running: the unit of each log that is written, and units that hold states of streams."""

    unit_of: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, HeldStates] = field(default_factory=dict)


NOTHING_RUNS = PlacedQueries()


@dataclass(frozen=True)
class _Movable:
    """A node of joins that may live in another's; `sources` are the nodes of its inputs, by their names."""

    node: Node
    unit: Unit
    members: tuple[MultiJoinMember, ...]
    sources: Mapping[str, str]
    keys: Mapping[str, Expr]

    @property
    def can_found(self) -> bool:
        return isinstance(self.node.operator, SharedMultiJoin)


@dataclass
class _House:
    """A node in which others may live, under the name of its unit."""

    name: str
    open: bool = True
    known: Mapping[str, str] = field(default_factory=dict)  # keys, as the journal holds them
    inside: list[_Movable] = field(default_factory=list)

    def fits(self, one: _Movable) -> bool:
        """Is there something in common, and the same key wherever there is, or was?"""
        there = {name: render(key) for other in self.inside for name, key in other.keys.items()}
        keys = {**self.known, **there}
        same = all(keys.get(name, render(key)) == render(key) for name, key in one.keys.items())
        return same and len(there.keys() & one.keys.keys()) > 1

    def saved(self, one: _Movable) -> float:
        there = [member for other in self.inside for member in other.members]
        return saved_by_sharing(one.members, there)


def logs_read(unit: Unit, graph: QueryGraph) -> dict[str, frozenset[str]]:
    """By log that a unit writes, the inputs that it comes from: of a node in which others live, its own."""
    behind: dict[str, frozenset[str]] = {}  # by node
    for node_id in unit.nodes:
        read = [_given(source, graph, behind) for source in _sources(graph[node_id], graph)]
        behind[node_id] = read[0] if len(read) == 1 else frozenset().union(*read)
    return {log: behind[root] for root, log in unit.outputs}


def _given(source: str, graph: QueryGraph, behind: Mapping[str, frozenset[str]]) -> frozenset[str]:
    log = log_of(graph[source], graph)
    return behind.get(source, frozenset()) if log is None else frozenset([log])


def _sources(node: Node, graph: QueryGraph) -> Sequence[str]:
    shared = graph[node.inputs[0]] if isinstance(node.operator, Part) else None
    if not isinstance(node.operator, Part) or not shared or not isinstance(shared.operator, SharedMultiJoin):
        return node.inputs
    member = member_of(shared.operator, node.operator)
    by_name = dict(zip(shared.operator.inputs, shared.inputs, strict=True))
    return [by_name[name] for name in member.inputs]


def joined_on(
    unit: Unit, graph: QueryGraph, before: Mapping[str, str] | None = None
) -> dict[str, str] | None:
    """By input, the key on which all joins of a unit are, or were `before`, as the journal holds it; None for
    other units."""
    movable = next((one for one in _movables(graph, unit) if one.can_found), None)
    if movable is None:
        return None
    return {**(before or {}), **{name: render(key) for name, key in movable.keys.items()}}


def gathered(
    graph: QueryGraph, units: tuple[Unit, ...], placed: PlacedQueries = NOTHING_RUNS
) -> tuple[QueryGraph, tuple[Unit, ...]]:
    """The graph and its units with joins over overlapping sets of streams in one node each."""
    graph, units = _parted(graph, units, placed)
    movable = [one for unit in units for one in _movables(graph, unit)]
    if not any(one.can_found for one in movable):
        return graph, units
    houses: dict[str, _House] = {}
    new: list[_Movable] = []
    for one in movable:
        home = _home(graph, one, placed)
        if home is None:
            new.append(one)
        elif home != one.unit.id or one.can_found:
            known = placed.states.get(home)
            if home not in houses:
                houses[home] = _House(home) if known is None else _House(home, known.open, known.keys)
            house = houses[home]
            house.inside.append(one)
    # Joins of two streams come last: they found nothing, and live well by themselves.
    for one in sorted(new, key=lambda one: not one.can_found):
        best = _best(houses, one)
        if best is None and one.can_found:
            best = houses.setdefault(one.unit.id, _House(one.unit.id))
        if best is not None:
            best.inside.append(one)
    return _moved(graph, units, [house for house in houses.values() if _has_guests(house)])


def _parted(
    graph: QueryGraph, units: tuple[Unit, ...], placed: PlacedQueries
) -> tuple[QueryGraph, tuple[Unit, ...]]:
    """With a unit of their own for joins of two streams that live elsewhere, where others of these do not."""
    found: list[Unit] = []
    for unit in units:
        away = _living_elsewhere(graph, unit, placed)
        if away and len(away) < len(unit.outputs):
            graph, *parts = _split(graph, unit, away)
            found += parts
        else:
            found.append(unit)
    return graph, tuple(found)


def _living_elsewhere(graph: QueryGraph, unit: Unit, placed: PlacedQueries) -> set[str]:
    """Logs that another unit writes; and, where no others stay here, those that are new."""
    if len(unit.stateful_nodes) != 1 or not isinstance(graph[unit.stateful_nodes[0]].operator, SharedJoin):
        return set()
    homes = {log: placed.unit_of.get(log, "") for _, log in unit.outputs}
    away = {log for log, home in homes.items() if home != unit.id and home in placed.states}
    judging = {log for root, log in unit.outputs if _judges(graph, unit, root)}
    if not judging and unit.id not in homes.values():
        return away and set(homes)
    return away - judging


def _judges(graph: QueryGraph, unit: Unit, root: str) -> bool:
    """Does a result ask which rows have been matched?"""
    (node_id,) = unit.stateful_nodes
    join, members = graph[node_id].operator, _members_of(graph, node_id, [root])
    assert isinstance(join, SharedJoin)
    return replace(join, members=tuple(m for m in join.members if m.name in members)).judges_rows


def _members_of(graph: QueryGraph, node_id: str, roots: Sequence[str]) -> set[str]:
    parts = (graph[one] for root in roots for one in graph.ancestors(root))
    return {p.operator.member for p in parts if isinstance(p.operator, Part) and p.inputs[0] == node_id}


def _split(graph: QueryGraph, unit: Unit, away: Collection[str]) -> tuple[QueryGraph, Unit, Unit]:
    """A unit and its join, without some of the logs that it writes, and those."""
    (node_id,) = unit.stateful_nodes
    join, guests = graph[node_id].operator, f"{node_id} of guests"
    assert isinstance(join, SharedJoin)
    outputs = [[one for one in unit.outputs if (one[1] in away) is moving] for moving in (False, True)]
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
    inside = {*unit.nodes, guests}
    units = []
    for name, kept, own in ((unit.id, node_id, outputs[0]), (guests, guests, outputs[1])):
        behind = {one for root, _ in own for one in parted.ancestors(root)} & inside
        ordered = tuple(one for one in nodes if one in behind)
        units.append(Unit(name, ordered, unit.inputs, tuple(own), (kept,)))
    return parted, units[0], units[1]


def _has_guests(house: _House) -> bool:
    return any(one.unit.id != house.name for one in house.inside)


def _home(graph: QueryGraph, one: _Movable, placed: PlacedQueries) -> str | None:
    """The unit in which a node's queries run; None if they are new, or are not what they were."""
    outputs = [log for root, log in one.unit.outputs if one.node.id in graph.ancestors(root)]
    home = next((placed.unit_of[log] for log in outputs if log in placed.unit_of), None)
    if home is None or home == one.unit.id:
        return home
    keys = placed.states[home].keys if home in placed.states else {}
    return home if any(keys.get(name) == render(key) for name, key in one.keys.items()) else None


def _best(houses: Mapping[str, _House], one: _Movable) -> _House | None:
    """Where most is saved; a node that has its own name is its own."""
    if one.unit.id in houses:
        return houses[one.unit.id]
    possible = [house for house in houses.values() if house.open and house.fits(one)]
    best = max(possible, key=lambda house: (house.saved(one), house.name), default=None)
    return best if best is not None and best.saved(one) >= WORTH else None


def _movables(graph: QueryGraph, unit: Unit) -> Iterator[_Movable]:
    if len(unit.stateful_nodes) == 1:
        found = _movable(graph, graph[unit.stateful_nodes[0]], unit)
        if found is not None:
            yield found


def _movable(graph: QueryGraph, node: Node, unit: Unit) -> _Movable | None:
    """A node of joins on one key throughout, of declared streams, none of them twice, all over time."""
    join = node.operator
    sources = [graph[source] for source in node.inputs]
    if not isinstance(join, (SharedJoin, SharedMultiJoin)) or not graph.has_parts(node.id):
        return None
    declared = all(isinstance(source.operator, Source) for source in sources)
    if not declared or len({source.id for source in sources}) != len(sources):
        return None
    names = [content_of(graph, source) for source in sources]
    keys: dict[str, Expr] = {}
    if isinstance(join, SharedJoin):
        if join.counts_rows or join.expires_rows or join.deadlines or join.judges_rows:
            return None
        if len(join.keys[0]) != 1:
            return None
        ((left,), (right,)) = join.keys
        members = tuple(
            MultiJoinMember(
                member.name, member.windows, member.selections, member.residual, member.columns, member.limit,
                inputs=tuple(names), equal=(((0, left), (1, right)),),
            )
            for member in join.members
        )  # fmt: skip
        return _Movable(
            node, unit, members, dict(zip(names, node.inputs, strict=True)), {names[0]: left, names[1]: right}
        )
    for member in join.members:
        own = one_key(member)
        if own is None or any(keys.setdefault(name, key) != key for name, key in own.items()):
            return None
    return _Movable(node, unit, join.members, dict(zip(join.inputs, node.inputs, strict=True)), keys)


def _moved(
    graph: QueryGraph, units: tuple[Unit, ...], houses: list[_House]
) -> tuple[QueryGraph, tuple[Unit, ...]]:
    made = {house.name: _built(graph, house) for house in houses}
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
    home = {one.unit.id: house for house in houses for one in house.inside}
    found: dict[str, Unit] = {}
    for unit in units:
        if unit.id not in home:
            found[unit.id] = unit
        elif home[unit.id].name not in found:
            found[home[unit.id].name] = _unit(home[unit.id], made[home[unit.id].name], position)
    return QueryGraph(nodes, graph.streams), tuple(found.values())


def _built(graph: QueryGraph, house: _House) -> Node:
    """The node of all who live in a house."""
    sources = dict(sorted({name: s for one in house.inside for name, s in one.sources.items()}.items()))
    members = [member for one in house.inside for member in _told(house, one)]
    operator = SharedMultiJoin(tuple(sources), tuple(members))
    first = graph[next(iter(sources.values()))]
    return Node(
        states_id(house.name), operator, tuple(sources.values()), first.schema, first.kind, house.name
    )


def _told(house: _House, one: _Movable) -> Iterator[MultiJoinMember]:
    """The members of one who lives there; to people they say what is stored for others as well."""
    others = [member for other in house.inside if other is not one for member in other.members]
    share = (
        f"{saved_by_sharing(one.members, others):.0%} of what it would keep by itself is kept for others too"
    )
    for member in one.members:
        yield replace(member, why=f"{member.why}; {share}" if member.why else share)


def _unit(house: _House, node: Node, position: Mapping[str, int]) -> Unit:
    own = {one.node.id for one in house.inside}
    inside = {node_id for one in house.inside for node_id in one.unit.nodes if node_id not in own}
    return Unit(
        house.name,
        tuple(sorted({node.id, *inside}, key=position.__getitem__)),
        tuple(sorted({log for one in house.inside for log in one.unit.inputs})),
        tuple(output for one in house.inside for output in one.unit.outputs),
        (node.id,),
    )
