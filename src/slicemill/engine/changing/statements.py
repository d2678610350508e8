"""The catalog in the journal: the statements that were run in a home, in order, with user and time.

{"at": 1700000000000000, "by": "ann", "kind": "query", "name": "hot", "text": "CREATE QUERY hot AS …"}

In place of its kind, a DROP has the kinds that it takes away, under "dropped". An aggregate in Python has a
digest of its source, under "code". What is in force is the sum of the entries.

A script is run again at every start. What it declares under a name that is in force must mean what the home
keeps under that name: results of two meanings do not belong into one log.
"""

from __future__ import annotations

import getpass
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from slicemill.aggregate.python_source import source_digest
from slicemill.errors import all_of
from slicemill.esl import Bound, EslError, SourceText, bind_script
from slicemill.esl.syntax.errors import Diagnostic, render
from slicemill.esl.types.aggregate import AggregateDefinition
from slicemill.esl.types.catalog import (
    CALLED,
    Catalog,
    DerivedStream,
    DroppedName,
    QueryDefinition,
    Setting,
    Statement,
    Stream,
    View,
)
from slicemill.esl.types.classifier import Classifier
from slicemill.esl.types.function import FunctionDefinition
from slicemill.esl.types.model import ModelDefinition, ModelTemplate
from slicemill.explain.statements import describe
from slicemill.plan.content import quoted
from slicemill.plan.meaning import called_by, changed_parts

_LOGGER = logging.getLogger("slicemill")

_RELATION = "relation"
_QUERY = "query"
_FUNCTION = "function"
_CALLED = ("aggregate", "window aggregate", "model")
_SHOWN = 200
_MODELS = (ModelDefinition, ModelTemplate)
# Of which the words do not matter, where they mean the same.
_REPLACED_BY_KEPT = (Stream, DerivedStream, View, AggregateDefinition, *_MODELS, FunctionDefinition)

Key = tuple[str, str]
Entry = Mapping[str, Any]


def in_force(entries: Iterable[Entry]) -> dict[Key, Entry]:
    """Each statement that nothing has dropped or replaced, by kind and name."""
    found: dict[Key, Entry] = {}
    for entry in entries:
        _take(entry, found)
    return found


def _take(entry: Entry, found: dict[Key, Entry]) -> None:
    for kind in entry.get("dropped", ()):
        found.pop((kind, entry["name"].lower()), None)
    if "dropped" not in entry:
        found[_key(entry)] = entry


def _key(entry: Entry) -> Key:
    return entry["kind"], entry["name"].lower()


def log_warnings(bound: Bound) -> None:
    """What in a script is probably not meant as it stands."""
    for warning in bound.warnings:
        _LOGGER.warning("%s", render(bound.source, warning))


@dataclass(frozen=True)
class KeptStatements:
    """The statements in force in a home; `logs` are the names under which it keeps rows."""

    entries: Mapping[Key, Entry]
    home: Path
    logs: Collection[str]

    @staticmethod
    def of(statements: Iterable[Entry], home: Path, logs: Collection[str]) -> KeptStatements:
        return KeptStatements(in_force(statements), home, logs)

    @cached_property
    def _read(self) -> tuple[Catalog, list[Setting], list[str]]:
        """What they declare and set, and the names of those that this version cannot read."""
        catalog = Catalog()
        settings: list[Setting] = []
        waiting = list(self.entries.values())
        bound = True
        while bound and waiting:  # one that was replaced may stand before what it is made of
            bound, left = False, []
            for entry in waiting:
                found = bind_script(SourceText(_declaration(entry)), catalog)
                if found.diagnostics:
                    left.append(entry)
                else:
                    catalog, bound = found.catalog, True
                    settings += [one for one, _ in found.statements if isinstance(one, Setting)]
            waiting = left
        return catalog, settings, [entry["name"] for entry in waiting]

    @property
    def catalog(self) -> Catalog:
        """What they declare. One that this version cannot read is left out."""
        return self._read[0]

    @property
    def settings(self) -> list[Setting]:
        return self._read[1]

    @property
    def unread(self) -> list[str]:
        """The names of those that this version cannot read."""
        return self._read[2]

    def agreed(self, bound: Bound) -> tuple[Catalog, set[Key]]:
        """The catalog that a script leaves, and what it says of it that the home has in other words.

        Where only the words differ, what is kept counts: state is found by what it was called when it began.
        Raises EslError where a name means something else by now.
        """
        catalog, entries = bound.catalog.copy(), dict(self.entries)
        dropped: list[DroppedName] = []
        same: set[Key] = set()
        problems: list[Diagnostic] = []
        for statement, span in bound.statements:
            entry = _identity(statement)
            if isinstance(statement, DroppedName):
                _take({**entry, "text": ""}, entries)
                dropped.append(statement)
                continue
            key = _key(entry)
            known = entries.get(key)
            text = bound.source.text[span.start : span.end]
            if known is None and entry["name"] in self.logs and (problem := self._taken(statement)):
                problems.append(Diagnostic(problem[0], span, problem[1]))
            if known is None or isinstance(statement, Setting) or _says(known, text, entry):
                continue
            kept = self.catalog.copy()
            for name in dropped:
                kept.add(name)
            before = _declared(key, kept)
            if before is None:
                continue
            parts = changed_parts(before, statement)
            if known.get("code") != entry.get("code") and not parts:
                parts = ["source"]
            if not parts:
                same.add(key)
                _keep(before, statement, catalog)
            elif problem := self._refused(before, parts, known["text"], kept):
                problems.append(Diagnostic(problem[0], span, problem[1]))
        if problems:
            raise EslError(bound.source, problems)
        return catalog, same

    def _taken(self, statement: Statement) -> tuple[str, str] | None:
        """What is wrong with a query under whose name a stream that the script does not have keeps rows."""
        owner = self.catalog.owner_of(statement.name)
        if owner is None or not isinstance(statement, QueryDefinition):
            return None
        return (
            f"stream {owner.name}, kept in {self.home}, has rows under the name {statement.name}",
            "give the query another name",
        )

    def _refused(
        self, before: Statement, parts: list[str], text: str, kept: Catalog
    ) -> tuple[str, str] | None:
        """What is wrong with a change, and what to do; None where nobody has used what was there before."""
        kind, name = describe(before)[0], before.name
        if isinstance(before, (QueryDefinition, Stream, DerivedStream, Classifier)):
            if name not in self.logs:
                return None
            has = "has" if len(parts) == 1 and not parts[0].endswith("s") else "have"
            was = " ".join((before.text if isinstance(before, QueryDefinition) else text).split())
            was = was if len(was) <= _SHOWN else f"{was[: _SHOWN - 1]}…"
            message = (
                f"{kind} {name} is kept in {self.home}, and its {all_of(parts)} {has} changed: it was {was}"
            )
            if isinstance(before, Stream):
                return message, "give the new stream another name"
            return message, f"DROP {kind.upper()} {quoted(name)} first, or give this one another name"
        users = _users(before, kept)
        if not users:
            return None
        message = f"{kind} {name} has changed, and {all_of(users)}, kept in {self.home}, uses it"
        return message, f"drop {all_of(users)} first, or give the new {kind} another name"


def new_entries(
    bound: Bound,
    known: Iterable[Entry],
    at_us: int,
    same: Collection[Key] = (),
    by: str | None = None,
) -> list[dict[str, Any]]:
    """Entries for the statements of a script, without those that are in force already.

    A script is run again at every start, and says nothing new then; `same` it says in other words.
    """
    entries, who = in_force(known), _user() if by is None else by
    found: list[dict[str, Any]] = []
    for statement, span in bound.statements:
        text = bound.source.text[span.start : span.end]
        entry = {"at": at_us, "by": who, **_identity(statement), "text": text}
        if not _says_nothing_new(entry, entries, same):
            found.append(entry)
            _take(entry, entries)
    return found


def _says_nothing_new(entry: Entry, entries: Mapping[Key, Entry], same: Collection[Key]) -> bool:
    if "dropped" in entry:
        return False
    key = _key(entry)
    known = entries.get(key)
    if known is None:
        return False
    return key in same or _says(known, entry["text"], entry)


def _says(known: Entry, text: str, entry: Entry) -> bool:
    return (known["text"], known.get("code")) == (text, entry.get("code"))


def _identity(statement: Statement) -> dict[str, Any]:
    if isinstance(statement, DroppedName):
        if statement.kind in CALLED:
            return {"dropped": list(_CALLED), "name": statement.name}
        kinds = {"QUERY": _QUERY, "FUNCTION": _FUNCTION}
        return {"dropped": [kinds.get(statement.kind, _RELATION)], "name": statement.name}
    found: dict[str, Any] = {"kind": _kind(statement), "name": statement.name}
    if isinstance(statement, (AggregateDefinition, FunctionDefinition)) and statement.external is not None:
        found["code"] = source_digest(statement.external)
    if isinstance(statement, Classifier) and statement.options.observe is not None:
        found["code"] = source_digest(statement.options.observe)
    return found


def _kind(statement: Statement) -> str:
    if isinstance(statement, AggregateDefinition):
        return "window aggregate" if statement.window else "aggregate"
    kinds: dict[type, str] = {
        QueryDefinition: _QUERY,
        ModelDefinition: "model",
        ModelTemplate: "model",
        FunctionDefinition: _FUNCTION,
        Setting: "setting",
    }
    return kinds.get(type(statement), _RELATION)


def _declaration(entry: Entry) -> str:
    """The text of an entry; a SELECT without a name has got one."""
    text: str = entry["text"]
    bare = entry["kind"] == _QUERY and not text.upper().startswith("CREATE")
    return f"CREATE QUERY {quoted(entry['name'])} AS {text}" if bare else text


def _declared(key: Key, catalog: Catalog) -> Statement | None:
    kind, name = key
    base, window = catalog.declared_versions(name)
    found: dict[str, Statement | None] = {
        _QUERY: catalog.queries.get(name),
        _RELATION: catalog.relations.get(name),
        "model": catalog.models.get(name),
        _FUNCTION: catalog.functions.get(name),
        "aggregate": base,
        "window aggregate": window,
    }
    return found.get(kind)


def _keep(before: Statement, statement: Statement, catalog: Catalog) -> None:
    """Let what is kept take the place of a statement that says the same."""
    if _declared((_kind(statement), statement.name.lower()), catalog) is not statement:
        return  # dropped, or declared anew, further below
    if isinstance(before, QueryDefinition) and isinstance(statement, QueryDefinition):
        catalog.add(replace(before, options=statement.options))
    elif isinstance(before, _REPLACED_BY_KEPT):
        catalog.add(before)


def _users(statement: Statement, kept: Catalog) -> list[str]:
    """What is kept and made of a relation, or calls an aggregate or function, be it by way of others."""
    if isinstance(statement, FunctionDefinition):
        callers = kept.dependants(_FUNCTION.upper(), statement.name)
        called = {name.lower() for name in callers if any(kept.declared_versions(name))}
        direct = [name for name in callers if name.lower() in {*kept.queries, *kept.relations}]
        return list(dict.fromkeys([*direct, *_callers(called, kept)]))
    if not isinstance(statement, (AggregateDefinition, *_MODELS)):
        return kept.dependants(_RELATION.upper(), statement.name)
    return _callers({statement.name.lower()}, kept)


def _callers(aggregates: set[str], kept: Catalog) -> list[str]:
    """What calls one of some aggregates, be it by way of another one."""
    names, found = set(aggregates), 0
    defined = [*kept.base_aggregates.values(), *kept.window_aggregates.values()]
    while found < len(names):
        found = len(names)
        names |= {definition.name.lower() for definition in defined if _called_by(definition, kept) & names}
    return list(dict.fromkeys(user for name in sorted(names) for user in kept.dependants("AGGREGATE", name)))


def _called_by(definition: AggregateDefinition, kept: Catalog) -> set[str]:
    return {kept.declared_as(name).lower() for name in called_by(definition)}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # a user that the system has no name for
