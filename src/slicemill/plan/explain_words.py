"""What each operator does, in words and symbols of SQL: shared by the text, JSON and SVG of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from slicemill.esl.render.expressions import render
from slicemill.esl.types.catalog import TimestampKind
from slicemill.esl.types.classifier import Classifier
from slicemill.esl.types.expression import ColumnRef, Expr, columns_of, conjunction, transform
from slicemill.esl.types.load_budget import METHODS
from slicemill.esl.types.query import FrameUnit, Window, WindowCall
from slicemill.esl.types.relation import AggregateCall, SelectItem
from slicemill.operators import specs as op
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.slices.shared import planned_chain
from slicemill.operators.join.slices.statistics import ASSUMED
from slicemill.operators.models.cores import cores_of
from slicemill.operators.panes.grids import KEPT, edge_grids
from slicemill.time import format_us


class Role(StrEnum):
    """What kind of thing a node is to somebody who looks at the whole graph."""

    SOURCE = "source"
    TABLE = "table"
    STATELESS = "stateless"
    STATEFUL = "stateful"
    SINK = "sink"


Fact: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A symbol of relational algebra (or none), a title, and facts as (what, text), the chief one first."""

    symbol: str
    title: str
    facts: tuple[Fact, ...] = ()

    @property
    def headline(self) -> str:
        return f"{self.symbol} {self.title}" if self.symbol else self.title


TIMESTAMPS = {
    TimestampKind.EXTERNAL: "external timestamp",
    TimestampKind.INTERNAL: "internal timestamp",
    TimestampKind.LATENT: "no timestamp (latent)",
}
_STATEFUL = (
    op.WindowJoin,
    op.SharedJoin,
    op.GroupAggregate,
    op.RelationAggregate,
    op.WindowAggregate,
    op.SharedWindows,
    op.SharedModels,
    op.Coalesce,
    op.Classify,
)


def role_of(node: Node) -> Role:
    if isinstance(node.operator, op.Source):
        return Role.SOURCE
    if isinstance(node.operator, (op.Scan, op.Materialize)):
        return Role.TABLE
    if isinstance(node.operator, op.Sink):
        return Role.SINK
    return Role.STATEFUL if isinstance(node.operator, _STATEFUL) else Role.STATELESS


def is_lookup_arc(graph: QueryGraph, target: str, port: int) -> bool:
    """Does this input bring rows to look up, not tuples that flow?"""
    operator = graph[target].operator
    if isinstance(operator, op.Classify):
        return port == len(operator.classifier.inputs)
    return isinstance(operator, op.Lookup) and port == 1


def words_of(node: Node, graph: QueryGraph) -> NodeDescription:
    """The description of one node."""
    operator = node.operator
    if isinstance(operator, op.Source):
        return NodeDescription("", f"Stream {operator.stream}", (("time", TIMESTAMPS[operator.kind]),))
    if isinstance(operator, op.Scan):
        return NodeDescription("", f"Table {operator.relation}")
    if isinstance(operator, op.Filter):
        return NodeDescription("σ", "Filter", (("where", render(operator.condition)),))
    if isinstance(operator, op.Drop):
        return _drop(operator)
    if isinstance(operator, op.WholeWindows):
        return NodeDescription(
            "", "Whole windows", (("of which nothing was dropped by", graph[operator.box].name),)
        )
    if isinstance(operator, op.Project):
        return NodeDescription("π", "Project", (("select", _items(operator.items)),))
    if isinstance(operator, op.Merge):
        order = "as tuples arrive" if node.kind is TimestampKind.LATENT else "by timestamp"
        return NodeDescription("∪", "Union", (("merged", order),))
    if isinstance(operator, op.WindowJoin):
        return _join(operator)
    if isinstance(operator, op.SharedJoin):
        return _shared_join(operator)
    if isinstance(operator, op.InOrder):
        return NodeDescription("", "In order", (("by", "the latest of the joined tuples"),))
    if isinstance(operator, op.Lookup):
        return _lookup(operator, graph[node.inputs[1]])
    if isinstance(operator, op.GroupAggregate):
        facts = _grouped(operator.calls, operator.group_by)
        return NodeDescription("γ", "Aggregate", (*facts, ("over", "all history")))
    if isinstance(operator, op.RelationAggregate):
        return _relation_aggregate(operator)
    if isinstance(operator, op.WindowAggregate):
        return NodeDescription("γ", "Window aggregate", _window_calls(operator.calls))
    if isinstance(operator, op.SharedWindows):
        return _shared_windows(operator)
    if isinstance(operator, op.SharedModels):
        return _shared_models(operator)
    if isinstance(operator, op.Coalesce):
        facts = (
            ("runs of", ", ".join(operator.attributes)),
            *_partition([i.expr for i in operator.partition_by]),
            *((("where", render(operator.where)),) if operator.where is not None else ()),
            *((("memory", str(operator.budget)),) if operator.budget is not None else ()),
        )
        return NodeDescription("", "Coalesce", (*facts, ("window", str(operator.window))))
    if isinstance(operator, op.Classify):
        return _classify(operator.classifier)
    if isinstance(operator, op.Materialize):
        return NodeDescription("", f"View {operator.view}", (("window", str(operator.window)),))
    if isinstance(operator, op.Part):
        return _part(operator, graph[node.inputs[0]].operator)
    return NodeDescription("", f"Query {operator.query}")


def operator_name(operator: op.Operator) -> str:
    """The class of an operator in snake case.

    >>> operator_name(op.Merge())
    'merge'
    """
    name = type(operator).__name__
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")


def port_name(node: Node, port: int) -> str:
    """What the operator calls an input: its alias, or nothing where there is none."""
    operator = node.operator
    if isinstance(operator, op.WindowJoin):
        return operator.aliases[port]
    if isinstance(operator, op.Lookup):
        return operator.alias if port == 1 else operator.stream_alias
    return ""


def _join(join: op.WindowJoin) -> NodeDescription:
    condition = "every combination" if join.condition is None else render(join.condition)
    windows = _each(join.aliases, [str(window) for window in join.windows])
    return NodeDescription("⋈", "Join", (("on", condition), ("windows", windows)))


def _shared_join(join: op.SharedJoin) -> NodeDescription:
    equal = [f"{render(left)} = {render(right)}" for left, right in zip(*join.keys, strict=True)]
    facts: tuple[Fact, ...] = (("on", " AND ".join(equal) or "every combination"),)
    if len(join.members) == 1:
        return NodeDescription("⋈", "Join", (*facts, *_own_part(join.members[0])))
    return NodeDescription("⋈", f"{_many(len(join.members), 'join')} in slices", (*facts, *_chain(join)))


def _chain(join: op.SharedJoin) -> tuple[Fact, ...]:
    """Where the slices end, and what they should keep and compare beside the ways without slices."""
    chain = planned_chain(join)
    if chain is None:
        return ()
    ends = [", ".join(f"{end:g} s" for end in dict.fromkeys(side)) for side in chain.ends]
    costs = {"slices": chain.expected, **chain.baselines}
    kept = ", ".join(f"{name} {cost.memory:,.0f}" for name, cost in costs.items())
    compared = ", ".join(f"{name} {cost.cpu:,.0f}" for name, cost in costs.items())
    known = join.measured or ASSUMED
    rates = " and ".join(f"{rate:,.0f}" for rate in known.rates)
    passing = {
        f"{known.passing.get((member.name, side), known.selected):.3g}"
        for member in join.members
        for side, selection in enumerate(member.selections)
        if selection is not None
    }
    selected = f"of which {' or '.join(sorted(passing))} pass a condition, " if passing else ""
    return (
        ("slices end at", ends[0] if ends[0] == ends[1] else f"0: {ends[0]}; 1: {ends[1]}"),
        ("tuples kept", kept),
        ("comparisons/s", compared),
        (
            "measured" if known.measured else "assuming",
            f"{rates} tuples/s, {selected}{known.matching:.3g} of pairs match",
        ),
    )


def _own_part(member: op.JoinMember) -> tuple[Fact, ...]:
    """What a join has of its own; the columns of its inputs are called 0.… and 1.…"""
    facts = [("windows", _each(("0", "1"), [str(window) for window in member.windows]))]
    facts += [(f"where {n}", render(e)) for n, e in enumerate(member.selections) if e is not None]
    facts += [("and", render(member.residual))] if member.residual is not None else []
    return tuple(facts)


def _each(aliases: Sequence[str], windows: Sequence[str]) -> str:
    """The window of each input, said once where they are all the same."""
    if len(windows) > 1 and len(set(windows)) == 1:
        return f"{windows[0]} each"
    return ", ".join(f"{alias} {window}".strip() for alias, window in zip(aliases, windows, strict=True))


def _lookup(lookup: op.Lookup, found: Node) -> NodeDescription:
    relation = found.operator
    name = found.id
    if isinstance(relation, op.Scan):
        name = relation.relation
    elif isinstance(relation, op.Materialize):
        name = relation.view
    title = f"Look up {name}" if lookup.alias == name else f"Look up {name} AS {lookup.alias}"
    condition = "every row" if lookup.condition is None else render(lookup.condition)
    facts: list[Fact] = [("on", condition)]
    if lookup.left:
        facts.append(("no match", "keep the tuple, with NULLs"))
    return NodeDescription("⋈", title, tuple(facts))


def _classify(classifier: Classifier) -> NodeDescription:
    options = classifier.options
    facts = [("features", ", ".join(classifier.features))]
    facts += [("per", classifier.key)] if classifier.key is not None else []
    facts += [
        ("learn", f"{classifier.label} from {classifier.training}"),
        ("every", format_us(classifier.every_us)),
        ("look at", f"{_many(options.capacity, 'value')}, chosen by {options.policy}"),
    ]
    return NodeDescription("", "Classify", tuple(facts))


def _relation_aggregate(aggregate: op.RelationAggregate) -> NodeDescription:
    windows = [window for _, window in aggregate.windows]
    aliases = [(column or "").removesuffix("._ts") for column, _ in aggregate.windows]
    extents = _each(aliases, [_length(window) for window in windows])
    report = "at each arrival"
    if aggregate.slide is not None:
        frame = next(window.frame for window in windows if window.slide is not None)
        report = format_us(aggregate.slide) if frame is FrameUnit.RANGE else f"{aggregate.slide} tuples"
    facts = [*_grouped(aggregate.calls, aggregate.group_by), ("window", extents)]
    if aggregate.where is not None:
        facts.append(("where", render(aggregate.where)))
    return NodeDescription("γ", "Aggregate", (*facts, ("every", report)))


def _shared_windows(shared: op.SharedWindows) -> NodeDescription:
    """What panes are kept: where they are cut, and what they hold of the tuples."""
    edges = edge_grids(window for member in shared.members for window in member.windows)
    panes = " and ".join(
        f"every {format_us(step)}{f' from {format_us(offset)}' if offset else ''}" for step, offset in edges
    )
    kept: dict[str, list[str]] = {}
    for member in shared.members:
        for call in member.operator.calls:
            partials = KEPT[call.name] if member.partial else ("values",)
            found = kept.setdefault(", ".join(render(a) for a in call.arguments) or "*", [])
            found += [partial for partial in partials if partial not in found]
    facts = [("in", f"panes cut {panes}")]
    facts += [("per pane", f"{', '.join(partials)} of {what}") for what, partials in kept.items()]
    facts += _partition(shared.keys)
    return NodeDescription("γ", f"Windows of {_many(len(shared.members), 'aggregate')}", tuple(facts))


def _shared_models(shared: op.SharedModels) -> NodeDescription:
    """What is kept of the windows, and for whom."""
    cores = cores_of(shared)
    asked = sum(len(core.users) for core in cores)
    facts = [("kept", f"{_many(len(cores), 'core')}, asked for {_many(asked, 'time')}")]
    for window in dict.fromkeys(core.window for core in cores):
        facts.append(("over", _preceding(window)))
        for core in cores:
            if core.window == window:
                users = ", ".join(
                    f"{call_text(call)} of {query}" for query, call in dict.fromkeys(core.users)
                )
                facts.append(("core", f"{core.core} for {users}" if len(shared.calls) > 1 else core.core))
    facts += _partition(shared.keys)
    return NodeDescription("γ", f"Cores of {_many(len(shared.calls), 'model')}", tuple(facts))


def _part(part: op.Part, shared: op.Operator) -> NodeDescription:
    """A member in the words of the operator it was before it was shared."""
    assert isinstance(shared, op.Shared), "a part is of what is shared"
    member = op.member_of(shared, part)
    if isinstance(member, op.JoinMember):
        return NodeDescription("⋈", "From slices", _own_part(member))
    if isinstance(member, op.ModelMember):
        return NodeDescription("γ", "From cores", _window_calls(member.operator.calls))
    if isinstance(member.operator, op.RelationAggregate):
        facts = _relation_aggregate(member.operator).facts
    else:
        facts = _window_calls(member.operator.calls)
    where = conjunction(member.conditions)
    selected = (("where", render(where)),) if where is not None else ()
    return NodeDescription("γ", "From panes", (*facts, *selected))


def _many(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _length(window: Window) -> str:
    return str(Window(window.frame, window.extent))


def _grouped(calls: Sequence[AggregateCall], group_by: Sequence[SelectItem]) -> tuple[Fact, ...]:
    facts = [("compute", ", ".join(call_text(call) for call in calls))] if calls else []
    if group_by:
        facts.append(("group by", ", ".join(render(item.expr) for item in group_by)))
    return tuple(facts)


def call_text(call: AggregateCall | WindowCall) -> str:
    arguments = ", ".join(render(argument) for argument in call.arguments) or "*"
    return f"{call.name}({'DISTINCT ' if call.distinct else ''}{arguments})"


def _window_calls(calls: Sequence[WindowCall]) -> tuple[Fact, ...]:
    """Calls over one common window together, or else each with its own."""
    if len({(call.window, call.partition_by) for call in calls}) > 1:
        return tuple(("compute", f"{call_text(call)} OVER ({_over(call)})") for call in calls)
    computed = ", ".join(call_text(call) for call in calls)
    window = ("window", _preceding(calls[0].window))
    return (("compute", computed), *_partition(calls[0].partition_by), window)


def _partition(exprs: Sequence[Expr]) -> tuple[Fact, ...]:
    return (("partition by", ", ".join(render(expr) for expr in exprs)),) if exprs else ()


def _over(call: WindowCall) -> str:
    parts = [f"PARTITION BY {text}" for _, text in _partition(call.partition_by)]
    return " ".join([*parts, _preceding(call.window)])


def _preceding(window: Window) -> str:
    length = _length(window)
    return f"{length} PRECEDING{str(window).removeprefix(length)}"


def _items(items: Sequence[SelectItem]) -> str:
    short = _short_names(items)

    def change(part: Expr) -> Expr | None:
        return (
            replace(part, name=short[part.name])
            if isinstance(part, ColumnRef) and part.name in short
            else None
        )

    return ", ".join(_item(SelectItem(item.name, transform(item.expr, change))) for item in items)


def _short_names(items: Sequence[SelectItem]) -> dict[str, str]:
    """Calls with OVER without their windows, which the operator below tells, unless they differ in these."""
    names = sorted({name for item in items for name in columns_of(item.expr) if " OVER (" in name})
    short = {name: f"{name.split(' OVER (')[0]} OVER (…)" for name in names}
    return short if len(set(short.values())) == len(names) else {}


def _item(item: SelectItem) -> str:
    text = render(item.expr)
    named = text in (item.name, f'"{item.name}"') or text.endswith(f".{item.name}")
    return text if named else f"{text} AS {item.name}"


def _drop(operator: op.Drop) -> NodeDescription:
    budget = operator.budget
    facts = [("under load", METHODS[budget.method])]
    if operator.utility is not None:
        facts.append(("utility", render(operator.utility)))
    if budget.lag_us is not None:
        facts.append(("lag", f"at most {format_us(budget.lag_us).lower()}"))
    if budget.memory is not None:
        facts.append(("state", f"at most {budget.memory:,} bytes"))
    if budget.least:
        facts.append(("keeps", f"{budget.least:.0%} at least"))
    return NodeDescription("", "Drop box", tuple(facts))
