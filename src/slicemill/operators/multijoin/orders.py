"""Probing orders: from each stream to all others, for many queries at once (S25, S49, S57).

The orders of all queries from one stream are a tree: queries go together for as long as they probe the same
states by the same keys, with what was tested so far. Which state is next goes by what is expected to be found
there: the fewest first, and those without a key in common last. Results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slicemill.operators.multijoin.keys import KeyTable, Link


@dataclass(frozen=True, slots=True)
class StateProbe:
    """A look into the state of an input: by a key, if there is one; what else must agree."""

    target: int
    by: Link | None
    checks: tuple[Link, ...] = ()

    @property
    def name(self) -> str:
        """The same for all queries that look there by the same keys, and in the next session."""
        links = [self.by, *self.checks] if self.by is not None else []
        return f"{self.target}:" + ",".join(f"{link.of}.{link.of_key}={link.to_key}" for link in links)


@dataclass(slots=True)
class ProbingNode:
    """Partial results that have come here are `bound` to these inputs. Some queries `end` here."""

    bound: tuple[int, ...]
    ends: list[str] = field(default_factory=list)
    next: dict[StateProbe, ProbingNode] = field(default_factory=dict)

    def members(self) -> list[str]:
        """All queries whose results come by here."""
        return [*self.ends, *(name for node in self.next.values() for name in node.members())]


def probing_tree(
    source: int,
    joined: Mapping[str, Sequence[int]],
    keys: KeyTable,
    expected: Callable[[StateProbe], float],
) -> ProbingNode:
    """The orders from one input; `joined` has the inputs of each query, `expected` the rows a probe finds."""
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
        best = min(probes, key=lambda probe: (probe.by is None, expected(probe), probe.target))
        together.setdefault(best, {})[name] = inputs
    for probe, those in together.items():
        node.next[probe] = _grown((*bound, probe.target), those, keys, expected)
    return node


def _probe(
    name: str, bound: tuple[int, ...], target: int, keys: KeyTable, expected: Callable[[StateProbe], float]
) -> StateProbe:
    """By the key that finds the fewest rows; the others are compared."""
    links = keys.links(name, bound, target)
    if not links:
        return StateProbe(target, None)
    by = min(links, key=lambda link: (expected(StateProbe(target, link)), link.to_key))
    return StateProbe(target, by, tuple(link for link in links if link != by))
