"""Probing orders: the order in which a new row probes the stored rows of the other join inputs.

The orders of all queries that start at the same stream form a tree (S25, S49, S57). Queries share a branch as
long as they probe the same states by the same keys. The next state is the state with the fewest expected
matches. States without a common key are probed last. Results do not depend on the order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slicemill.operators.join.spec import KeyTable, Link


@dataclass(frozen=True, slots=True)
class StateProbe:
    """Search of one join input's stored rows for matches of a partial result.

    `by` is the key that is looked up. The keys in `checks` are then compared. If the partial result has no
    key in common with the input, `by` is None and all stored rows are candidates.
    """

    target: int
    by: Link | None
    checks: tuple[Link, ...] = ()

    @property
    def name(self) -> str:
        """Return the name under which the statistics of this probe are stored.

        All queries use the same name, also after a restart.
        """
        links = [self.by, *self.checks] if self.by is not None else []
        return f"{self.target}:" + ",".join(f"{link.of}.{link.of_key}={link.to_key}" for link in links)


@dataclass(slots=True)
class ProbingNode:
    """Step of the probing orders, reached after the inputs in `bound` have been joined.

    The probing orders of all queries that start at one input form a tree. A partial result of this node has a
    row of each input in `bound`. It is a complete result of the queries in `ends`.
    """

    bound: tuple[int, ...]
    ends: list[str] = field(default_factory=list)
    next: dict[StateProbe, ProbingNode] = field(default_factory=dict)

    def members(self) -> list[str]:
        """Return the queries whose results are complete at this node or at a later node."""
        return [*self.ends, *(name for node in self.next.values() for name in node.members())]


def probing_tree(
    source: int,
    joined: Mapping[str, Sequence[int]],
    keys: KeyTable,
    expected: Callable[[StateProbe], float],
) -> ProbingNode:
    """Return the orders in which new rows of one input probe the other inputs, as a tree.

    `joined` has the inputs of each query. `expected` estimates the number of rows that a probe finds.
    """
    return _grown((source,), {name: own for name, own in joined.items() if source in own}, keys, expected)


def _grown(
    bound: tuple[int, ...],
    joined: Mapping[str, Sequence[int]],
    keys: KeyTable,
    expected: Callable[[StateProbe], float],
) -> ProbingNode:
    node = ProbingNode(bound)
    together: dict[StateProbe, dict[str, Sequence[int]]] = {}
    for name, inputs in joined.items():
        left = [one for one in inputs if one not in bound]
        if not left:
            node.ends.append(name)
            continue
        probes = [_probe(name, bound, target, keys, expected) for target in left]
        best = min(probes, key=lambda look: (look.by is None, expected(look), look.target))
        together.setdefault(best, {})[name] = inputs
    for look, those in together.items():
        node.next[look] = _grown((*bound, look.target), those, keys, expected)
    return node


def _probe(
    name: str, bound: tuple[int, ...], target: int, keys: KeyTable, expected: Callable[[StateProbe], float]
) -> StateProbe:
    """Return the probe of input `target` that looks up the key with the fewest expected matches.

    The other keys of the join are compared afterwards.
    """
    links = keys.links(name, bound, target)
    if not links:
        return StateProbe(target, None)
    by = min(links, key=lambda link: (expected(StateProbe(target, link)), link.to_key))
    return StateProbe(target, by, tuple(link for link in links if link != by))
