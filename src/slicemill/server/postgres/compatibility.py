"""Answers to statements that clients expect every PostgreSQL server to support.

Settings are accepted and ignored. Transactions are accepted without effect, as every statement is committed
by itself. `system_catalog` answers queries on PostgreSQL's system catalog; an unsupported one returns no
rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
from sqlglot import exp

from slicemill import __version__
from slicemill.esl import SourceText
from slicemill.esl.syntax.nesting import nesting_told
from slicemill.server.answer import StatementAnswer
from slicemill.server.parameters import guessed
from slicemill.server.questions.asking import reads_system_tables
from slicemill.server.questions.messages import SystemQuestion
from slicemill.server.questions.postgres_words import postgres_tree
from slicemill.server.service import RelationShape

SERVER_VERSION = "15.0"  # the PostgreSQL version with this protocol and these types
SETTINGS = {
    "server_version": SERVER_VERSION,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "transaction_isolation": "serializable",
    "default_transaction_isolation": "serializable",
    "application_name": "",
    "search_path": "public",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "jit": "off",
}
VERSION = f"PostgreSQL {SERVER_VERSION} (slicemill {__version__})"

_TRANSACTIONS = {
    "BEGIN": "BEGIN",
    "START": "START TRANSACTION",
    "COMMIT": "COMMIT",
    "END": "COMMIT",
    "ROLLBACK": "ROLLBACK",
    "ABORT": "ROLLBACK",
    "SAVEPOINT": "SAVEPOINT",
    "RELEASE": "RELEASE",
}
_IGNORED = {"DISCARD": "DISCARD ALL", "RESET": "RESET", "DEALLOCATE": "DEALLOCATE", "UNLISTEN": "UNLISTEN"}
_SHOW = re.compile(r"SHOW\s+(?:SESSION\s+)?(TRANSACTION\s+ISOLATION\s+LEVEL|\w+)\s*;?\s*$", re.IGNORECASE)
_FUNCTIONS: dict[str, str | None] = {
    "version": VERSION,
    "current_schema": "public",
    "current_database": "slicemill",
    "current_catalog": "slicemill",
    "current_user": "slicemill",
    "session_user": "slicemill",
}
_CALL = re.compile(
    rf"SELECT\s+(?:pg_catalog\.)?({'|'.join(_FUNCTIONS)})\s*(?:\(\s*\))?\s*(?:AS\s+(\w+))?\s*;?\s*$",
    re.IGNORECASE,
)


def answered(
    text: str,
    words: tuple[str, str],
    relations: Callable[[], Iterable[RelationShape]],
    ask: Callable[[SystemQuestion], pa.Table | None],
    values: Sequence[object] = (),
) -> StatementAnswer | None:
    """Return the answer to a statement that only PostgreSQL clients send; None if it is for the service.

    `relations` returns all relations that an ad hoc query can name. `values` are the values of parameters.
    `ask` executes a query on the system catalog, or returns None if the query is not supported.
    """
    first = words[0]
    if first in _TRANSACTIONS:
        return StatementAnswer(_TRANSACTIONS[first])
    if first in _IGNORED:
        return StatementAnswer(_IGNORED[first])
    if first == "SET" and words[1] != "POLICY":
        return StatementAnswer("SET")
    if first == "SHOW" and (found := _SHOW.match(text.strip())):
        name = "transaction_isolation" if " " in found[1].strip() else found[1]
        known = {setting.lower(): setting for setting in SETTINGS}.get(name.lower())
        return None if known is None else _one(name.lower(), SETTINGS[known], "SHOW")
    if found := _CALL.match(text.strip()):
        name = found[1].lower()
        return _one(found[2] or name, _FUNCTIONS[name])
    if first in ("SELECT", "WITH"):
        with nesting_told(SourceText(text)):
            if reads_system_tables(text):
                found = _system_tables(text, values, list(relations()), ask)
                return StatementAnswer("SELECT", table=found)
    return None


def _one(name: str, value: str | None, tag: str = "SELECT") -> StatementAnswer:
    return StatementAnswer(tag, table=pa.table({name: pa.array([value], pa.string())}))


def _system_tables(
    sql: str,
    values: Sequence[object],
    relations: Sequence[RelationShape],
    ask: Callable[[SystemQuestion], pa.Table | None],
) -> pa.Table:
    """Execute a query on the system catalog. The result is empty if the query is not supported."""
    shapes = {found.name: found.rows.schema for found in relations}
    views = frozenset(found.name for found in relations if found.is_view)
    found = ask(SystemQuestion(sql, [guessed(value) for value in values], shapes, views, SETTINGS))
    if found is not None:
        return found
    tree = postgres_tree(sql)
    selects = tree.selects if isinstance(tree, exp.Query) else []
    return pa.table({one.alias_or_name or "?column?": pa.array([], pa.string()) for one in selects})
