"""Specification of the result of one query of a shared operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slicemill.esl.types.catalog import Catalog
from slicemill.operators.description import Description
from slicemill.operators.kind import Keys, KeysBelow, MemberKind, OperatorKind
from slicemill.operators.operator import Operator, SharedOperator

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class Part(Operator):
    """Result of a shared operator, its input, for one member."""

    member: str


def member_of(shared: SharedOperator, part: Part) -> Any:
    """Return the member that a part belongs to."""
    return next(member for member in shared.members if member.name == part.member)


def _asked(part: Part, node: Node, graph: QueryGraph) -> tuple[MemberKind, Any]:
    """Return the kind of the member, and the member."""
    from slicemill.operators.registry import kind_of  # imported late: it lists this kind too

    shared = graph[node.inputs[0]].operator
    assert isinstance(shared, SharedOperator), "a part is of what is shared"
    kind = kind_of(shared).member
    assert kind is not None, "what is shared has members"
    return kind, member_of(shared, part)


def _words(part: Part, node: Node, graph: QueryGraph) -> Description:
    """Describe a member like the operator that it was before sharing."""
    kind, member = _asked(part, node, graph)
    return kind.words(member)


def _history_us(part: Part, node: Node, graph: QueryGraph) -> int | None:
    kind, member = _asked(part, node, graph)
    return kind.history_us(member)


def _seq_bits(part: Part, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
    """Return the number of sequence bits of a member's results."""
    kind, member = _asked(part, node, graph)
    return kind.seq_bits(member, bits, catalog)


def _keys_below(part: Part, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
    """Return keys of the shared operator's inputs."""
    kind, member = _asked(part, node, graph)
    shared = graph[node.inputs[0]]
    below = kind.keys_below(shared.operator, member, keys)
    return None if below is None else tuple(zip(shared.inputs, below, strict=True))


KINDS = (
    OperatorKind(
        spec=Part,
        keys_below=_keys_below,
        words=_words,
        keeps_state=False,
        ties=True,
        history_us=_history_us,
        numbered_by=lambda _, node, graph: graph[node.inputs[0]].inputs,
        seq_bits=_seq_bits,
    ),
)
