"""State tables, exactly as in M18 (path), M19 (break point) and M20 (fork): golden G10."""

from __future__ import annotations

import pytest

from slicemill_oracle.graph import Topology
from slicemill_oracle.nos import TRANSITIONS, Strategy
from slicemill_oracle.state_table import StateRow, state_table

PATH = {"σ": ("S",), "Σ1": ("σ",), "Σ2": ("Σ1",)}


def table(
    operators: dict[str, tuple[str, ...]],
    breaks: frozenset[tuple[str, str]] = frozenset(),
    sources: tuple[str, ...] = ("S",),
    strategies: dict[str, Strategy] | None = None,
) -> list[tuple[str, str | None, str | None, str]]:
    chosen = strategies or {}
    rows = state_table(Topology(sources, operators, breaks), lambda name: chosen.get(name, "DFS"))
    return [(row.state, row.pred, row.succ, row.transition) for row in rows]


def test_g10_a_path_has_a_source_an_interior_and_a_sink_row() -> None:
    assert table(PATH) == [
        ("σ", None, "Σ1", "DFS-Source"),
        ("Σ1", "σ", "Σ2", "DFS-NOS"),
        ("Σ2", "Σ1", None, "DFS-Sink"),
    ]


def test_g10_a_break_point_makes_a_sink_before_it_and_a_source_after_it() -> None:
    assert table(PATH, frozenset({("Σ1", "Σ2")})) == [
        ("σ", None, "Σ1", "DFS-Source"),
        ("Σ1", "σ", None, "DFS-Sink"),
        ("Σ2", None, None, "DFS-Source-Sink"),
    ]


def test_g10_a_fork_is_a_state_with_a_row_per_branch() -> None:
    assert table({"σ": ("S",), "Σ1": ("σ",), "Σ2": ("σ",)}) == [
        ("σ", None, "fork", "DFS-Source"),
        ("fork", "σ", "Σ1", "DFS-Fork"),
        ("fork", "σ", "Σ2", "DFS-Fork"),
        ("Σ1", "fork", None, "DFS-Sink"),
        ("Σ2", "fork", None, "DFS-Sink"),
    ]


def test_a_fork_directly_after_a_source_has_no_predecessor() -> None:
    assert table({"σ1": ("S",), "σ2": ("S",)}) == [
        ("fork", None, "σ1", "DFS-Fork"),
        ("fork", None, "σ2", "DFS-Fork"),
        ("σ1", "fork", None, "DFS-Sink"),
        ("σ2", "fork", None, "DFS-Sink"),
    ]


def test_a_union_has_a_row_per_producer() -> None:
    rows = table({"σ": ("S",), "U": ("σ", "T"), "π": ("U",)}, sources=("S", "T"))
    assert rows[1:3] == [("U", "σ", "π", "DFS-NOS"), ("U", None, "π", "DFS-Source")]


def test_a_branch_cut_off_a_fork_leaves_a_path() -> None:
    operators = {"σ": ("S",), "Σ1": ("σ",), "Σ2": ("σ",)}
    assert table(operators, frozenset({("σ", "Σ2")})) == [
        ("σ", None, "Σ1", "DFS-Source"),
        ("Σ1", "σ", None, "DFS-Sink"),
        ("Σ2", None, None, "DFS-Source-Sink"),
    ]


def test_a_union_under_round_robin_starts_a_fragment() -> None:
    rows = table({"σ": ("S",), "U": ("σ", "T")}, sources=("S", "T"), strategies={"U": "RR"})
    assert rows == [("σ", None, None, "DFS-Source-Sink"), ("U", None, None, "RR-Source-Sink")]


def test_parts_of_a_graph_can_have_different_strategies() -> None:
    rows = table(PATH, strategies={"Σ2": "BFS"})
    assert [transition for *_, transition in rows] == ["DFS-Source", "DFS-NOS", "BFS-Sink"]


@pytest.mark.parametrize("strategy", ["DFS", "BFS", "RR"])
def test_the_library_has_every_macro_of_a_strategy(strategy: str) -> None:
    kinds = {name.split("-", 1)[1] for name in TRANSITIONS if name.startswith(strategy)}
    assert kinds == {"NOS", "Source", "Sink", "Source-Sink", "Fork"}


def test_state_rows_are_plain_data() -> None:
    assert StateRow("σ", None, None, "DFS-Sink") == StateRow("σ", None, None, "DFS-Sink")
