"""The catalog in the journal: the statements that were run in a home, in order, with user and time.

{"at": 1700000000000000, "by": "ann", "kind": "query", "name": "hot", "text": "CREATE QUERY hot AS …"}

In place of its kind, a DROP has the kinds that it takes away, under "dropped".
What is in force is the sum of the entries.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Mapping
from typing import Any

from slicemill.esl import Bound
from slicemill.esl.types.aggregate import AggregateDefinition
from slicemill.esl.types.catalog import (
    CALLED,
    DroppedName,
    QueryDefinition,
    Setting,
    Statement,
)
from slicemill.esl.types.model import ModelDefinition

_RELATION = "relation"
_CALLED = ("aggregate", "window aggregate", "model")


def in_force(entries: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """The text of each statement that nothing has dropped or replaced, by kind and name."""
    texts: dict[tuple[str, str], str] = {}
    for entry in entries:
        _take(entry, texts)
    return texts


def new_entries(bound: Bound, known: Iterable[Mapping[str, Any]], at_us: int) -> list[dict[str, Any]]:
    """Entries for the statements of a script, without those that are in force already.

    A script is run again at every start, and says nothing new then.
    """
    texts, who = in_force(known), _user()
    entries: list[dict[str, Any]] = []
    for statement, span in bound.statements:
        text = bound.source.text[span.start : span.end]
        entry = {"at": at_us, "by": who, **_identity(statement), "text": text}
        if "dropped" in entry or texts.get((entry["kind"], entry["name"])) != text:
            entries.append(entry)
            _take(entry, texts)
    return entries


def _take(entry: Mapping[str, Any], texts: dict[tuple[str, str], str]) -> None:
    for kind in entry.get("dropped", ()):
        texts.pop((kind, entry["name"]), None)
    if "dropped" not in entry:
        texts[entry["kind"], entry["name"]] = entry["text"]


def _identity(statement: Statement) -> dict[str, Any]:
    if isinstance(statement, DroppedName):
        if statement.kind in CALLED:
            return {"dropped": list(_CALLED), "name": statement.name}
        return {"dropped": ["query" if statement.kind == "QUERY" else _RELATION], "name": statement.name}
    return {"kind": _kind(statement), "name": statement.name}


def _kind(statement: Statement) -> str:
    if isinstance(statement, AggregateDefinition):
        return "window aggregate" if statement.window else "aggregate"
    kinds: dict[type, str] = {QueryDefinition: "query", ModelDefinition: "model", Setting: "setting"}
    return kinds.get(type(statement), _RELATION)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # a user that the system has no name for
