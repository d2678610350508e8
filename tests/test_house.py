"""House rules: the allowed directions of imports between packages."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from support.package_graph import (
    PACKAGES,
    ROOT,
    arrows,
    as_svg,
    cycles,
    imports,
    loaded_with,
    modules,
    room_of,
    without_detours,
)

# Rooms that are logic over values and arrays: they can be read, tested and used without Spark.
NO_SPARK = ("plan", "scheduling", "metrics", "model", "shedding", "scalar", "aggregate")
# `run --engine reference` runs the oracle, and `test` compares with it; nobody else knows it.
ASK_THE_ORACLE = {"slicemill.cli.run", "slicemill.cli.test"}


def test_rooms_make_no_cycle() -> None:
    assert cycles(arrows()) == []


def test_the_product_imports_the_reference_engine_only_to_ask_it() -> None:
    assert [
        f"{room_of(one.module)} → reference"
        for one in imports()
        if one.module.startswith("slicemill.")
        and one.target.startswith("slicemill_oracle")
        and room_of(one.module) != "reference"
        and (one.at_load or one.module not in ASK_THE_ORACLE)
    ] == []


def test_the_product_does_not_import_the_lab() -> None:
    assert [
        str(one)
        for one in imports()
        if one.module.split(".")[0] == "slicemill" and one.target.split(".")[0] == "slicemill_lab"
    ] == []


def test_logic_loads_no_spark() -> None:
    assert [
        f"{room_of(module)}: {module}"
        for module in modules()
        if module.split(".")[0] == "slicemill"
        and room_of(module) in NO_SPARK
        and any(name.split(".")[0] == "pyspark" for name in loaded_with(module))
    ] == []


@pytest.mark.parametrize("folder", PACKAGES.values(), ids=PACKAGES)
def test_every_package_says_what_it_is(folder: Path) -> None:
    silent = [str(f) for f in folder.rglob("__init__.py") if not ast.get_docstring(ast.parse(f.read_text()))]
    assert silent == []


def test_the_picture_of_the_house_is_the_house() -> None:
    drawn = as_svg(arrows())
    path = ROOT / "docs" / "pictures" / "house.svg"
    assert path.read_text() == drawn, f"python tests/support/package_graph.py --svg {path.relative_to(ROOT)}"


def test_detours_are_left_out_of_the_picture() -> None:
    assert without_detours([("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d")]) == [
        ("a", "b"),
        ("b", "c"),
        ("c", "d"),
    ]
