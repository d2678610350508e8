"""Versions: the definitions that a name has had since it was declared, by the statements in the journal.

A result has the version that was in force before its epoch: results of two definitions are never in one
epoch, and the record that changes a definition has, if anything, the last rows of the one before, the deletes
of its table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from slicemill.engine.changing.statements import Entry
from slicemill.secrets import redacted
from slicemill.storage.log import Hold


@dataclass(frozen=True, slots=True)
class QueryVersion:
    """One definition of a name; `epoch` is the record with which it took effect.

    `because` names what it uses, where that was replaced and its own text stayed.
    """

    number: int
    epoch: int
    at_us: int
    by: str
    text: str
    because: str | None = None


_KINDS = {
    "query": frozenset(("query",)),
    "function": frozenset(("function",)),
    "aggregate": frozenset(("aggregate", "window aggregate")),
    "model": frozenset(("model",)),
}
_RELATION = frozenset(("relation",))


def versions_of(statements: Iterable[Entry], kind: str, name: str) -> list[QueryVersion]:
    """The versions of the query, stream, … of a name, the oldest first."""
    kinds, found = _KINDS.get(kind, _RELATION), list[QueryVersion]()
    for entry in statements:
        if entry["name"].lower() != name.lower():
            continue
        if kinds.intersection(entry.get("dropped", ())):
            found = []
        elif entry.get("kind") in kinds and entry.get("altered") and found:
            # It has another weight, slo, sink or RETAIN.
            found[-1] = replace(found[-1], text=redacted(entry["text"]))
        elif entry.get("kind") in kinds:
            found.append(
                QueryVersion(
                    len(found) + 1,
                    entry.get("epoch", 0),
                    entry["at"],
                    entry.get("by", ""),
                    redacted(entry["text"]),
                    entry.get("because"),
                )
            )
    return found


def shown_after(versions: Iterable[QueryVersion], hold: Hold | None) -> int:
    """The last epoch of definitions before the one whose rows can be read; -1 if that is the first.

    It is the newest, or while a log is paused that of then.
    """
    shown = [one.epoch for one in versions if hold is None or one.epoch <= hold.as_of]
    return shown[-1] if len(shown) > 1 else -1


def version_at(versions: Iterable[QueryVersion], epoch: int) -> int:
    """The number of the version whose rows an epoch has; 1 before the first."""
    return max((one.number for one in versions if one.epoch < epoch), default=1)
