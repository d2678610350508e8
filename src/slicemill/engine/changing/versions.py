"""Versions: successive definitions of a name, from the statements in the journal.

The rows of an epoch belong to the version in force before it: no epoch has results of two definitions. The
record that changes a definition may have the deletes of the old version's table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from slicemill.engine.changing.statements import Entry
from slicemill.secrets import redacted
from slicemill.storage.log import Hold


@dataclass(frozen=True, slots=True)
class QueryVersion:
    """Definition of a name, in force since record `epoch`.

    `because` names the replaced definition that it uses, if its own text is unchanged.
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
    """Return the versions of a name, the oldest first."""
    kinds, found = _KINDS.get(kind, _RELATION), list[QueryVersion]()
    for entry in statements:
        if entry["name"].lower() != name.lower():
            continue
        if kinds.intersection(entry.get("dropped", ())):
            found = []
        elif entry.get("kind") in kinds and entry.get("altered") and found:
            # only weight, slo, sink or RETAIN changed
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
    """Return the last epoch of hidden, earlier definitions. -1 without any.

    The visible definition is the newest one, or, while the log is paused, the one at the pause.
    """
    shown = [one.epoch for one in versions if hold is None or one.epoch <= hold.as_of]
    return shown[-1] if len(shown) > 1 else -1


def version_at(versions: Iterable[QueryVersion], epoch: int) -> int:
    """Return the number of the version that an epoch belongs to."""
    return max((one.number for one in versions if one.epoch < epoch), default=1)
