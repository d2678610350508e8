"""Ids of the specification in docstrings, comments, tests and pages exist in docs/spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.spec_ids import SPEC, is_module, items_of, modules_named, unknown_ids, used_ids

NUMBERS = {"M": 57, "S": 57, "P": 39, "C": 24, "L": 25}


def test_every_id_is_defined() -> None:
    assert unknown_ids() == []


def test_every_item_of_the_research_is_listed_once() -> None:
    found = [name for page in sorted(SPEC.glob("*.md")) for name in items_of(page)]
    assert len(found) == len(set(found))
    assert set(found) == {f"{letter}{i}" for letter, most in NUMBERS.items() for i in range(1, most + 1)}


def test_every_module_named_in_the_specification_exists() -> None:
    assert [f"{page.name}: {name}" for page, name in modules_named() if not is_module(name)] == []


@pytest.mark.parametrize("page", sorted(SPEC.glob("*.md")), ids=lambda page: page.stem)
def test_exactly_the_implemented_items_name_a_module(page: Path) -> None:
    items = items_of(page)
    cells = [[cell.strip() for cell in line.split("|")] for line in page.read_text().splitlines()]
    rows = {cell[1]: cell[2] for cell in cells if len(cell) == 4 and cell[1] in items}
    for name, built in items.items():
        assert ("`" in rows[name]) == built, f"{name}: python tests/support/spec_ids.py --write"


def test_ids_are_searched_in_prose_and_not_in_code(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""Panes (M34-M36, mill-E3).\n\n>>> "P98"\n"""\n\nx = "M0 10H5"  # as L7 says\n')
    assert used_ids(path) == {"M34", "M35", "M36", "mill-E3", "L7"}
