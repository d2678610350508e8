"""Equal expressions: how streams are connected, and keys of their states.

    a.k = b.k AND b.k = c.k AND b.x = c.x       is one set for k, over a, b and c, and one for x, over b and c

Sets over the same streams form one key. The state of a stream has an index for each of its keys. If a row has
several keys in common with a state, one key is looked up and the others are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import Expr
from slicemill.operators.kind import Keys
from slicemill.operators.multijoin.spec import MultiJoinMember


@dataclass(frozen=True, slots=True)
class Link:
    """Equality of a key of `of`, which is already joined, and of `to`.

    `of_key` and `to_key` are indexes into the keys of each input.
    """

    of: int
    of_key: int
    to: int
    to_key: int


class KeyTable:
    """Keys of all inputs, and how they connect the inputs of each query."""

    def __init__(self, inputs: Sequence[str], members: Sequence[MultiJoinMember]) -> None:
        self.keys: list[list[Keys]] = [[] for _ in inputs]
        numbers = {name: number for number, name in enumerate(inputs)}
        self._joined: dict[str, list[dict[int, int]]] = {}  # by query: for each key, its index by input
        for member in members:
            found = []
            for by_side in keys_together(member):
                places = {}
                for side, key in by_side.items():
                    known = self.keys[numbers[member.inputs[side]]]
                    if key not in known:
                        known.append(key)
                    places[numbers[member.inputs[side]]] = known.index(key)
                found.append(places)
            self._joined[member.name] = found

    def links(self, member: str, bound: Sequence[int], target: int) -> tuple[Link, ...]:
        """Return the links of a query to an input, one for each key."""
        found = []
        for places in self._joined[member]:
            of = next((one for one in bound if one in places), None)
            if target in places and of is not None:
                found.append(Link(of, places[of], target, places[target]))
        return tuple(found)

    def demanded(self, input_: int, key: int) -> list[str]:
        """Return the queries that need this key to be non-NULL."""
        return [
            name for name, keys in self._joined.items() if any(places.get(input_) == key for places in keys)
        ]


def keys_together(member: MultiJoinMember) -> list[dict[int, Keys]]:
    """Return the keys of a join by side, most streams first.

    The order does not depend on the order of FROM.
    """
    sets: dict[frozenset[int], list[dict[int, Expr]]] = {}
    for equal in member.equal:
        by_side = dict(equal)
        sets.setdefault(frozenset(by_side), []).append(by_side)
    found = []
    for sides, parts in sets.items():
        parts.sort(key=lambda part: sorted((member.inputs[side], render(e)) for side, e in part.items()))
        found.append({side: tuple(part[side] for part in parts) for side in sorted(sides)})
    return sorted(found, key=lambda by_side: (-len(by_side), sorted(member.inputs[side] for side in by_side)))
