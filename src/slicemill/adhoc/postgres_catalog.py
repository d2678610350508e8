"""Detection and parsing of queries on PostgreSQL's system catalog."""

from __future__ import annotations

import re

import sqlglot
from sqlglot import exp

# Functions that read and change settings. Like tables named `pg_…`, they belong to the system catalog.
_SETTINGS = ("current_setting", "set_config")
_SYSTEM = re.compile("|".join(("pg_", "information_schema", *_SETTINGS)), re.IGNORECASE)


def postgres_tree(sql: str) -> exp.Expr:
    """Parse a query in the PostgreSQL dialect. Raise an error of sqlglot if its syntax is not supported."""
    return sqlglot.parse_one(_with_lists_of_oids(sql), read="postgres")


def is_system_catalog_query(tree: exp.Expr) -> bool:
    """Return True if a query calls a function of the system catalog or of settings."""
    names = (call.name.lower() for call in tree.find_all(exp.Anonymous))
    return any(name.startswith("pg_") or name in _SETTINGS for name in names)


def may_be_catalog_query(sql: str) -> bool:
    """Return False if a query certainly does not read the system catalog. The query is not parsed."""
    return _SYSTEM.search(sql) is not None


def _with_lists_of_oids(sql: str) -> str:
    """Replace the type `oid[]`, which sqlglot does not know, by `bigint[]`.

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
