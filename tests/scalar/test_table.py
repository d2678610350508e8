"""The table of functions is complete: signatures, entries and SQL names match."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from slicemill.catalog.expressions import Call, Literal
from slicemill.functions import signatures
from slicemill.functions.function import SAME, Abbreviation, ScalarFunction
from slicemill.functions.registry import ABBREVIATIONS, FUNCTIONS, in_duckdb
from slicemill.functions.signatures import SCALARS
from slicemill.types import BOOLEAN, NULL

TOPICS = re.findall(r"# (\w+)\n((?:.+->.+\n)+)", signatures._LIBRARY)


def names_in(lines: str) -> set[str]:
    return {line.split("(")[0] for line in lines.splitlines()}


def entries_of(topic: str) -> set[str]:
    module = import_module(f"slicemill.functions.{topic}")
    tables = [value for name, value in vars(module).items() if name.isupper() and isinstance(value, dict)]
    return {name for table in tables for name, entry in table.items() if _is_entry(entry)}


def _is_entry(value: object) -> bool:
    return isinstance(value, ScalarFunction | Abbreviation)


def test_every_signature_is_listed_under_the_topic_of_its_entry() -> None:
    assert {name for _, lines in TOPICS for name in names_in(lines)} == set(SCALARS)
    for topic, lines in TOPICS:
        assert names_in(lines) <= entries_of(topic), topic


def test_each_function_name_has_one_entry() -> None:
    assert not set(FUNCTIONS) & set(ABBREVIATIONS)
    assert set(SCALARS) <= set(FUNCTIONS) | set(ABBREVIATIONS)


def templates() -> list[tuple[str, str]]:
    found = []
    for name in SCALARS:
        sql = (ABBREVIATIONS.get(name) or FUNCTIONS[name]).duckdb
        if sql is not None and sql != SAME and not callable(sql):
            found += [(name, text) for text in ((sql,) if isinstance(sql, str) else sql)]
    return found


@pytest.mark.parametrize(("name", "template"), templates())
def test_a_duckdb_template_takes_as_many_arguments_as_the_function(name: str, template: str) -> None:
    """A template with another number of placeholders could never be used."""
    count = len(set(re.findall(r"\{\d\}", template)))
    assert SCALARS[name].takes(count)
    assert in_duckdb(Call(name, (Literal(None, NULL),) * count, BOOLEAN)) == template
