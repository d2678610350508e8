"""Catalog in the journal: the executed statements, with user and time.

{"at": 1700000000000000, "by": "ann", "kind": "query", "name": "hot", "text": "CREATE QUERY hot AS …"}

An entry stores one executed statement. The entry of a DROP has a list of kinds under "dropped" in place of
"kind". The entry of an aggregate in Python has a digest of its source under "code". A statement is in force
if no later entry drops or replaces it.

A script is executed again at every start. A statement whose name is in force must mean the same as before,
because one log must not mix results of two definitions.
"""

from __future__ import annotations

import getpass
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlglot import exp

from slicemill.aggregates.udf.python_source import source_digest
from slicemill.binder.script import BoundScript, bind_script
from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.alert import Alert
from slicemill.catalog.catalog import (
    AlteredQuery,
    AlteredStream,
    Catalog,
    DerivedStream,
    DroppedName,
    QueryDefinition,
    QueryOptions,
    Setting,
    Statement,
    Stream,
    View,
)
from slicemill.catalog.extended import CalledDefinition, ComputedStream
from slicemill.catalog.function import FunctionDefinition
from slicemill.catalog.queries import ServiceLevel
from slicemill.catalog.statements import LifecycleChange, Replay
from slicemill.errors import all_of
from slicemill.explain.statements import describe
from slicemill.extension import called_kinds
from slicemill.functions.render import timestamp_text
from slicemill.plan.content import quote_name
from slicemill.plan.statement_equality import aggregates_called, diff_statements
from slicemill.secrets import redact
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import Diagnostic, EslError, SourceText, TextSpan, render
from slicemill.sql.grammar.statements import script
from slicemill.sql.grammar.windows import duration_of
from slicemill.sql.nodes import CreateMode, Option
from slicemill.storage.log import Hold
from slicemill.time import BEGINNING, END

_LOGGER = logging.getLogger("slicemill")

_RELATION = "relation"
_QUERY = "query"
_FUNCTION = "function"
_ALERT = "alert"
_SHOWN = 200
_DELIVERY = ("weight", "slo", "sink", "incomplete")  # options that do not change what a query computes
_ALTERED = (AlteredQuery, AlteredStream)
# Classes of statements whose stored text is kept if a new text of the statement has the same meaning.
_REPLACED_BY_KEPT = (Stream, DerivedStream, View, AggregateDefinition, CalledDefinition, FunctionDefinition)

Key = tuple[str, str]
Entry = Mapping[str, Any]


def in_force(entries: Iterable[Entry]) -> dict[Key, Entry]:
    """Return the journal entries of the statements in force, by kind and name of the declared object."""
    found: dict[Key, Entry] = {}
    for entry in entries:
        _apply_entry(entry, found)
    return found


def redact_entry(entry: Entry) -> Entry:
    """Return a journal entry without the passwords that earlier versions of slicemill stored in its text."""
    return {**entry, "text": redact(entry["text"])} if "text" in entry else entry


def _apply_entry(entry: Entry, found: dict[Key, Entry]) -> None:
    for kind in entry.get("dropped", ()):
        found.pop((kind, entry["name"].lower()), None)
    if "dropped" not in entry:
        found[_key(entry)] = entry


def _key(entry: Entry) -> Key:
    return entry["kind"], entry["name"].lower()


def changes_no_task(statement: Statement) -> bool:
    """Return True if a statement neither creates, changes nor drops a task."""
    dropped = isinstance(statement, DroppedName) and statement.kind == "ALERT"
    return dropped or isinstance(statement, (Alert, LifecycleChange, Replay, Setting))


def log_warnings(bound: BoundScript) -> None:
    """Log the warnings that the binder has found in a script."""
    for warning in bound.warnings:
        _LOGGER.warning("%s", render(bound.source, warning))


@dataclass(frozen=True, slots=True)
class ReplacedStatement:
    """CREATE OR REPLACE statement (`after`) and the statement that it replaces (`before`)."""

    before: Statement
    after: Statement
    span: TextSpan

    @property
    def only_moves(self) -> bool:
        """Return True if the replacement changes nothing but the source of a stream."""
        return isinstance(self.after, Stream) and diff_statements(self.before, self.after) == ["source"]


def key_of(statement: Statement) -> Key:
    """Return the kind and name under which a declaration is in force."""
    return _kind(statement), statement.name.lower()


@dataclass(frozen=True)
class StoredStatements:
    """Statements in force in the journal of a home directory, which also has the logs named in `logs`."""

    entries: Mapping[Key, Entry]
    home: Path
    logs: Collection[str]

    @staticmethod
    def of(statements: Iterable[Entry], home: Path, logs: Collection[str]) -> StoredStatements:
        return StoredStatements(in_force(statements), home, logs)

    @cached_property
    def _read(self) -> tuple[Catalog, list[Setting], list[str]]:
        """Return the catalog and settings of all entries, and the names of entries that cannot be bound."""
        catalog = Catalog()
        settings: list[Setting] = []
        waiting = list(self.entries.values())
        bound = True
        # An entry of a replaced statement may precede the entries on which it depends.
        while bound and waiting:
            bound, left = False, []
            for entry in waiting:
                found = bind_script(SourceText(declaration(entry)), catalog, stored=True)
                if found.diagnostics:
                    left.append(entry)
                else:
                    catalog, bound = found.catalog, True
                    settings += [one for one, _ in found.statements if isinstance(one, Setting)]
            waiting = left
        return catalog, settings, [entry["name"] for entry in waiting]

    @property
    def catalog(self) -> Catalog:
        """Return the catalog of the stored statements that this version of slicemill can read."""
        return self._read[0]

    @property
    def settings(self) -> list[Setting]:
        return self._read[1]

    @property
    def unread(self) -> list[str]:
        """Return the names of the stored statements that this version of slicemill cannot read."""
        return self._read[2]

    def without(self, others: Collection[Key]) -> Catalog:
        """Return the catalog of only the stored statements whose kind and name are in `others`."""
        entries = {key: entry for key, entry in self.entries.items() if key in others}
        return StoredStatements(entries, self.home, self.logs).catalog

    def reconcile(self, bound: BoundScript) -> tuple[Catalog, dict[Key, str], list[ReplacedStatement]]:
        """Compare a script with the stored statements; return the new catalog and the changed statements.

        The second result maps each statement of which only the wording changed to the text to store. The
        catalog keeps the stored definition of such a statement, because the names of its operator state
        derive from it. The text to store has the new RETAIN, weight, slo and sink. The third result lists the
        CREATE OR REPLACE statements that change a definition. Raises EslError if a statement without OR
        REPLACE changes the meaning of its name.
        """
        catalog, entries = bound.catalog.copy(), dict(self.entries)
        dropped: list[DroppedName] = []
        same: dict[Key, str] = {}
        problems: list[Diagnostic] = []
        replaced: list[ReplacedStatement] = []
        for position, (statement, span) in enumerate(bound.statements):
            if isinstance(statement, (*_ALTERED, LifecycleChange, Replay)):
                continue
            entry = _identity(statement)
            if isinstance(statement, DroppedName):
                _apply_entry({**entry, "text": ""}, entries)
                dropped.append(statement)
                continue
            key = _key(entry)
            known = entries.get(key)
            text = bound.source.text[span.start : span.end]
            if known is None and entry["name"] in self.logs and (problem := self._taken(statement)):
                problems.append(Diagnostic(problem[0], span, problem[1]))
            if known is None or isinstance(statement, Setting) or _has_text(known, text, entry):
                continue
            kept = self.catalog.copy()
            for name in dropped:
                kept.add(name)
            before = _find_declaration(key, kept)
            if before is None:
                continue
            now = _apply_later_alters(statement, catalog)
            if isinstance(now, Stream) and isinstance(before, Stream):
                if len(now.schema) == len(before.schema):
                    # The stored stream already has the columns that an ALTER STREAM further on adds.
                    statement = now
                now = statement
            parts = diff_statements(before, statement)
            if known.get("code") != entry.get("code") and not parts:
                parts = ["source"]
            if not parts and position in bound.replacing and _begin_differs(before, statement):
                parts = ["FROM"]
            if not parts:
                same[key] = _text_to_store(known, before, now, text)
                _use_stored_definition(before, now, catalog)
            elif position in bound.replacing and self._is_replaceable(
                one := ReplacedStatement(before, statement, span)
            ):
                replaced.append(one)
            elif problem := self._refused(before, parts, known["text"], kept):
                problems.append(Diagnostic(problem[0], span, problem[1]))
        if problems:
            raise EslError(bound.source, problems)
        if replaced and dropped:
            why = "DROP and OR REPLACE cannot take effect together"
            raise EslError(bound.source, [Diagnostic(why, replaced[0].span, "run them one after another")])
        return catalog, same, replaced

    def _is_replaceable(self, one: ReplacedStatement) -> bool:
        """Return True if CREATE OR REPLACE may replace a stored statement.

        Only the source of a stream with stored rows may change.
        """
        return one.only_moves or not (isinstance(one.after, Stream) and one.after.name in self.logs)

    def _taken(self, statement: Statement) -> tuple[str, str] | None:
        """Return error and hint if a new query has the name of a log that belongs to a stream, else None."""
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
        """Return error and hint for a statement that may not change the meaning of its name.

        Return None if no stored rows depend on the old definition.
        """
        kind, name = describe(before)[0], before.name
        if isinstance(before, (QueryDefinition, Stream, DerivedStream, ComputedStream)):
            if name not in self.logs:
                return None
            has = "has" if len(parts) == 1 and not parts[0].endswith("s") else "have"
            text = redact(before.text if isinstance(before, QueryDefinition) else text)
            was = " ".join(text.split())
            was = was if len(was) <= _SHOWN else f"{was[: _SHOWN - 1]}…"
            message = (
                f"{kind} {name} is kept in {self.home}, and its {all_of(parts)} {has} changed: it was {was}"
            )
            if isinstance(before, Stream):
                return message, (
                    f"write CREATE OR REPLACE STREAM {quote_name(name)}, which reads on from the new source"
                    if parts == ["source"]
                    else "give the new stream another name, and read both with UNION ALL; "
                    "columns are added with ALTER STREAM … ADD COLUMN"
                )
            if isinstance(before, ComputedStream):
                return message, f"DROP {before.kind} {quote_name(name)} first, or give this one another name"
            return message, f"write CREATE OR REPLACE {kind.upper()}, or give this one another name"
        users = [] if isinstance(before, Alert) else _users(before, kept)
        if not users:
            return None
        message = f"{kind} {name} has changed, and {all_of(users)}, kept in {self.home}, uses it"
        return message, f"drop {all_of(users)} first, or give the new {kind} another name"


def new_entries(
    bound: BoundScript,
    known: Iterable[Entry],
    at_us: int,
    same: Mapping[Key, str] | None = None,
    by: str | None = None,
) -> list[dict[str, Any]]:
    """Return journal entries for the statements of a script that are not yet in force.

    A script is executed again at every start, and then adds no entries. `same` maps each statement of which
    only the wording changed to the text to store.
    """
    entries, who = in_force(known), user() if by is None else by
    found: list[dict[str, Any]] = []
    for statement, span in bound.statements:
        if isinstance(statement, (LifecycleChange, Replay)):
            continue  # the journal stores the effect of PAUSE, REPLAY and the like, not the statement
        text = bound.source.text[span.start : span.end]
        if isinstance(statement, AlteredQuery):
            text = _text_to_store(entries[key_of(statement.after)], statement.before, statement.after, text)
        elif isinstance(statement, AlteredStream):
            text = _with_columns(entries[key_of(statement.after)], text)
        entry = {"at": at_us, "by": who, **_identity(statement), "text": text}
        if isinstance(statement, _ALTERED):
            entry["altered"] = True  # the meaning of the declaration is unchanged
        elif same and "dropped" not in entry and _key(entry) in entries:
            entry["text"] = same.get(_key(entry), text)
            if _key(entry) in same:
                entry["altered"] = True
        if not _repeats_entry(entry, entries):
            found.append(entry)
            _apply_entry(entry, entries)
    return found


def undo_entries(entries: Sequence[Entry], known: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return journal entries that undo the declarations of `entries`; names that they drop stay dropped."""
    dropped = [entry for entry in entries if "dropped" in entry]
    before = in_force([*known, *dropped])
    found: list[dict[str, Any]] = []
    for key, entry in in_force(entries).items():
        who = {"at": entry["at"], "by": entry["by"]}
        if key in before:
            found.append({**before[key], **who})
        else:
            found.append({**who, "dropped": [key[0]], "name": entry["name"], "text": "(not done)"})
    return found


def _repeats_entry(entry: Entry, entries: Mapping[Key, Entry]) -> bool:
    if "dropped" in entry:
        return False
    known = entries.get(_key(entry))
    return known is not None and _has_text(known, entry["text"], entry)


def _has_text(known: Entry, text: str, entry: Entry) -> bool:
    return (known["text"], known.get("code")) == (text, entry.get("code"))


def emits_changelog(statement: Statement | None) -> bool:
    """Return True if the results of a statement are a changelog."""
    return isinstance(statement, (QueryDefinition, DerivedStream)) and statement.schema.changelog


def _identity(statement: Statement) -> dict[str, Any]:
    if isinstance(statement, DroppedName):
        if statement.kind in called_kinds():
            return {"dropped": _kinds_called(), "name": statement.name}
        kinds = {"QUERY": _QUERY, "FUNCTION": _FUNCTION, "ALERT": _ALERT}
        return {"dropped": [kinds.get(statement.kind, _RELATION)], "name": statement.name}
    found: dict[str, Any] = {"kind": _kind(statement), "name": statement.name}
    if isinstance(statement, (AggregateDefinition, FunctionDefinition, ComputedStream)):
        found |= {} if statement.external is None else {"code": source_digest(statement.external)}
    return found


def _kinds_called() -> list[str]:
    """Return the values of "kind" in journal entries for all objects that queries call like aggregates."""
    return ["aggregate", "window aggregate", *sorted(map(str.lower, called_kinds() - {"AGGREGATE"}))]


def _kind(statement: Statement) -> str:
    if isinstance(statement, AggregateDefinition):
        return "window aggregate" if statement.window else "aggregate"
    if isinstance(statement, CalledDefinition):
        return statement.kind.lower()
    kinds: dict[type, str] = {
        QueryDefinition: _QUERY,
        AlteredQuery: _QUERY,
        AlteredStream: _RELATION,
        FunctionDefinition: _FUNCTION,
        Alert: _ALERT,
        Setting: "setting",
    }
    return kinds.get(type(statement), _RELATION)


def declaration(entry: Entry) -> str:
    """Return the statement text of a journal entry; a bare SELECT becomes CREATE QUERY … AS SELECT."""
    text: str = entry["text"]
    bare = entry["kind"] == _QUERY and not text.upper().startswith("CREATE")
    return f"CREATE QUERY {quote_name(entry['name'])} AS {text}" if bare else text


def _find_declaration(key: Key, catalog: Catalog) -> Statement | None:
    kind, name = key
    base, window = catalog.declared_versions(name)
    found: dict[str, Statement | None] = {
        _QUERY: catalog.queries.get(name),
        _RELATION: catalog.relations.get(name),
        _FUNCTION: catalog.functions.get(name),
        _ALERT: catalog.alerts.get(name),
        "aggregate": base,
        "window aggregate": window,
    }
    called = catalog.callables.get(name)
    return called if called is not None and called.kind.lower() == kind else found.get(kind)


def _begin_differs(before: Statement, after: Statement) -> bool:
    """Return True if the new definition of a query starts in the past, at another time than the old one."""
    if not (isinstance(before, QueryDefinition) and isinstance(after, QueryDefinition)):
        return False
    return after.begins_us not in (None, END, before.begins_us)


def _apply_later_alters(statement: Statement, catalog: Catalog) -> Statement:
    """Return a statement as it is after the ALTER statements that follow it in the same script."""
    if isinstance(statement, Stream):
        found = catalog.relations.get(statement.name.lower())
        same = isinstance(found, Stream) and found.schema.columns[: len(statement.schema)]
        return found if isinstance(found, Stream) and same == statement.schema.columns else statement
    now = catalog.queries.get(statement.name.lower())
    if isinstance(statement, QueryDefinition) and now is not None and now.query is statement.query:
        return now
    return statement


def _use_stored_definition(before: Statement, statement: Statement, catalog: Catalog) -> None:
    """Replace a statement in the catalog by the stored definition that has the same meaning."""
    if _find_declaration((_kind(statement), statement.name.lower()), catalog) is not statement:
        return  # a later statement of the script drops the name or declares it again
    if isinstance(before, QueryDefinition) and isinstance(statement, QueryDefinition):
        catalog.add(replace(before, options=statement.options, retain_us=statement.retain_us))
    elif isinstance(before, Stream) and isinstance(statement, Stream):
        catalog.add(
            replace(
                before,
                retain_us=statement.retain_us,
                units=statement.units,
                begin_us=statement.begin_us,
            )
        )
    elif isinstance(before, DerivedStream) and isinstance(statement, DerivedStream):
        catalog.add(replace(before, retain_us=statement.retain_us))
    elif isinstance(before, _REPLACED_BY_KEPT):
        catalog.add(before)


def _text_to_store(known: Entry, before: Statement, after: Statement, said: str) -> str:
    """Return the text to store for a statement of which only the wording changed.

    The text to store is the stored text with the new RETAIN, BEGIN and delivery options. If the units of a
    source changed, the new text is stored.
    """
    if isinstance(before, Stream) and isinstance(after, Stream) and before.units != after.units:
        return said
    text: str = known["text"]
    (node,), _ = script(SourceText(declaration(known)))
    made, printed = node.this if isinstance(node, CreateMode) else node, to_esl(node)
    retain_us = getattr(after, "retain_us", None)
    if getattr(before, "retain_us", None) != retain_us:
        made.set("retain", None if retain_us is None else duration_of(retain_us))
    if isinstance(before, Stream) and isinstance(after, Stream) and before.begin_us != after.begin_us:
        made.set("begin", _begin_of(after))
    if isinstance(before, QueryDefinition) and isinstance(after, QueryDefinition):
        for name in _DELIVERY:
            value = getattr(after.options, name)
            if getattr(before.options, name) != value:
                _set_option(made, name, None if value == getattr(QueryOptions(), name) else value)
    altered = to_esl(node)
    return text if altered == printed else altered


def _begin_of(stream: Stream) -> exp.Expression | None:
    """Return the syntax node of a stream's BEGIN clause, or None if the stream has no BEGIN clause."""
    if stream.begin_us is None:
        return None
    words = {BEGINNING: "EARLIEST", END: "LATEST"}
    word = words.get(stream.begin_us)
    return exp.Var(this=word) if word else exp.Literal.string(timestamp_text(stream.begin_us))


def _with_columns(known: Entry, said: str) -> str:
    """Return the CREATE STREAM text of a stream with the columns that an ALTER STREAM adds.

    DEFAULT values are left out, because they apply to earlier rows only. The schema of the log has them.
    """
    ((node,), _), ((alter,), _) = script(SourceText(declaration(known))), script(SourceText(said))
    made = node.this if isinstance(node, CreateMode) else node
    names = {column.this.name.lower() for column in made.args["columns"]}
    added = [column for column in alter.args["columns"] if column.this.name.lower() not in names]
    for column in added:
        column.set("default", None)
    made.set("columns", [*made.args["columns"], *added])
    text: str = known["text"]
    return to_esl(node) if added else text


def _set_option(made: exp.Expression, name: str, value: float | str | ServiceLevel | None) -> None:
    """Set an option of a CREATE QUERY syntax node. The value None removes the option."""
    options: list[Option] = list(made.args.get("options") or ())
    index = next((at for at, one in enumerate(options) if one.this.name.lower() == name), len(options))
    text = f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
    number = isinstance(value, float) and text.replace(".", "").isdecimal()
    literal = exp.Literal.number(text) if number else exp.Literal.string(text)
    made_option = Option(this=exp.Identifier(this=name, quoted=False), value=literal)
    options[index : index + 1] = [] if value is None else [made_option]
    made.set("options", options or None)


def _users(statement: Statement, kept: Catalog) -> list[str]:
    """Return the names of the stored queries and relations that use a definition, also indirectly.

    An indirect user uses another user of the definition.
    """
    if isinstance(statement, FunctionDefinition):
        callers = kept.dependants(_FUNCTION.upper(), statement.name)
        called = {name.lower() for name in callers if any(kept.declared_versions(name))}
        direct = [name for name in callers if name.lower() in {*kept.queries, *kept.relations}]
        return list(dict.fromkeys([*direct, *_callers(called, kept)]))
    if not isinstance(statement, (AggregateDefinition, CalledDefinition)):
        return kept.dependants(_RELATION.upper(), statement.name)
    return _callers({statement.name.lower()}, kept)


def _callers(aggregates: set[str], kept: Catalog) -> list[str]:
    """Return the stored queries and relations that call some aggregates, also indirectly."""
    names, found = set(aggregates), 0
    defined = [*kept.base_aggregates.values(), *kept.window_aggregates.values()]
    while found < len(names):
        found = len(names)
        names |= {
            definition.name.lower()
            for definition in defined
            if _aggregates_called_by(definition, kept) & names
        }
    return list(dict.fromkeys(user for name in sorted(names) for user in kept.dependants("AGGREGATE", name)))


def _aggregates_called_by(definition: AggregateDefinition, kept: Catalog) -> set[str]:
    return {kept.declaration_name(name).lower() for name in aggregates_called(definition)}


def user() -> str:
    """Return the name of the operating system's user, or "" if unknown."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # the operating system has no name for the user id


# Versions: successive definitions of a name, from the statements in the journal.
#
# An epoch (the rows of one commit) belongs to the version that was in force before its journal record. So it
# has results of one version. The record that changes a definition can contain rows: deletes of all rows of
# the old version.


@dataclass(frozen=True, slots=True)
class QueryVersion:
    """One definition of a name, in force since the journal record with number `epoch`.

    `because` is the name of a replaced definition that this definition uses, if its own text is unchanged.
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
}
_RELATIONS_WITH_VERSIONS = frozenset(("relation",))


def versions_of(statements: Iterable[Entry], kind: str, name: str) -> list[QueryVersion]:
    """Return the successive definitions of a name, oldest first."""
    others = frozenset((kind,)) if kind.upper() in called_kinds() else _RELATIONS_WITH_VERSIONS
    kinds, found = _KINDS.get(kind, others), list[QueryVersion]()
    for entry in statements:
        if entry["name"].lower() != name.lower():
            continue
        if kinds.intersection(entry.get("dropped", ())):
            found = []
        elif entry.get("kind") in kinds and entry.get("altered") and found:
            # An altered entry changes only weight, slo, sink, RETAIN or the wording of the definition.
            found[-1] = replace(found[-1], text=redact(entry["text"]))
        elif entry.get("kind") in kinds:
            found.append(
                QueryVersion(
                    len(found) + 1,
                    entry.get("epoch", 0),
                    entry["at"],
                    entry.get("by", ""),
                    redact(entry["text"]),
                    entry.get("because"),
                )
            )
    return found


def last_hidden_epoch(versions: Iterable[QueryVersion], hold: Hold | None) -> int:
    """Return the last epoch with results of replaced definitions, which readers no longer see, or -1.

    The visible definition is the newest definition, or, while the log is paused, the definition at the pause.
    """
    shown = [one.epoch for one in versions if hold is None or one.epoch <= hold.as_of]
    return shown[-1] if len(shown) > 1 else -1


def version_at(versions: Iterable[QueryVersion], epoch: int) -> int:
    """Return the number of the query definition that produced the results of an epoch."""
    return max((one.number for one in versions if one.epoch < epoch), default=1)
