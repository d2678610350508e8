"""Questions in PostgreSQL's words about its own catalog, as syntax trees."""

from __future__ import annotations

import re

import sqlglot
from sqlglot import exp

# The functions that read and change settings, as tables are read whose names begin with `pg_`.
_SETTINGS = ("current_setting", "set_config")
_SYSTEM = re.compile("|".join(("pg_", "information_schema", *_SETTINGS)), re.IGNORECASE)


def postgres_tree(sql: str) -> exp.Expr:
    """Return the syntax tree of a question. Raises sqlglot's errors where it is not understood."""
    return sqlglot.parse_one(_with_lists_of_oids(sql), read="postgres")


def is_system_question(tree: exp.Expr) -> bool:
    """Return True if a question calls a function that PostgreSQL has for its catalog or its settings."""
    names = (call.name.lower() for call in tree.find_all(exp.Anonymous))
    return any(name.startswith("pg_") or name in _SETTINGS for name in names)


def may_be_system_question(sql: str) -> bool:
    """Return False for most questions that do not read the catalog, without parsing them."""
    return _SYSTEM.search(sql) is not None


def _with_lists_of_oids(sql: str) -> str:
    """Return a question with lists of numbers in place of `oid[]`, which sqlglot does not know as a type.

    >>> _with_lists_of_oids("SELECT x = any($1::oid[]), 'oid []'")
    "SELECT x = any($1::bigint[]), 'oid []'"
    """
    tokens = sqlglot.tokenize(sql, read="postgres")
    parts, end = [], 0
    for colons, word, opens, closes in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        is_list = (opens.text, closes.text) == ("[", "]")
        if colons.text == "::" and word.text.lower() == "oid" and is_list:
            parts += [sql[end : word.start], "bigint"]
            end = word.end + 1
    return "".join([*parts, sql[end:]])
