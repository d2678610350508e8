"""Specification of filter and projection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import ColumnRef, Expr, columns_of, transform
from slicemill.esl.types.relation import SelectItem
from slicemill.operators.description import Description
from slicemill.operators.kind import ColumnsRead, Keys, KeysBelow, OperatorKind, same_keys
from slicemill.operators.operator import Operator

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class Filter(Operator):
    condition: Expr


@dataclass(frozen=True, slots=True)
class Project(Operator):
    items: tuple[SelectItem, ...]


def _keys_below_project(project: Project, node: Node, _: QueryGraph, keys: Keys) -> KeysBelow:
    items = {item.name: item.expr for item in project.items}
    below = tuple(
        transform(key, lambda e: items[e.name] if isinstance(e, ColumnRef) else None) for key in keys
    )
    return ((node.inputs[0], below),)


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
    """Return OVER calls without their windows, unless this is ambiguous.

    The operator below shows the windows.
    """
    names = sorted({name for item in items for name in columns_of(item.expr) if " OVER (" in name})
    short = {name: f"{name.split(' OVER (')[0]} OVER (…)" for name in names}
    return short if len(set(short.values())) == len(names) else {}


def _item(item: SelectItem) -> str:
    text = render(item.expr)
    named = text in (item.name, f'"{item.name}"') or text.endswith(f".{item.name}")
    return text if named else f"{text} AS {item.name}"


KINDS = (
    OperatorKind(
        spec=Filter,
        words=lambda where, *_: Description("σ", "Filter", (("where", render(where.condition)),)),
        label=lambda _: "where",
        shared_label=lambda where: f"where {render(where.condition)}",
        for_all=lambda *_: True,
        selections=lambda where, _: (where.condition,),
        columns_read=lambda where, _, wanted: ColumnsRead([where.condition], wanted),
        keeps_state=False,
        ties=True,
        keys_below=same_keys,
        step="slicemill.operators.select.step:filter_step",
    ),
    OperatorKind(
        spec=Project,
        words=lambda project, *_: Description("π", "Project", (("select", _items(project.items)),)),
        label=lambda _: "project",
        shared_label=lambda project: f"select {', '.join(item.name for item in project.items)}",
        for_all=lambda *_: True,
        # An item that no consumer reads is computed as well, since it may raise an error.
        columns_read=lambda project, *_: ColumnsRead([item.expr for item in project.items], ()),
        keeps_state=False,
        ties=True,
        keys_below=_keys_below_project,
        step="slicemill.operators.select.step:project_step",
    ),
)
