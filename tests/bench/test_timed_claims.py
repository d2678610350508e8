"""Claims about measured time are marked as timed, so that no test depends on the load of the machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slicemill_lab import claims

BENCH = Path(claims.__file__).parent / "bench"
CLAIMS = {"Claim", "at_most", "at_least", "within", "equal", "near", "ascending"}
OF_TIME = re.compile(r"CPU|cpu_s|\bseconds\b|delay|latency|\bp\d\d\b|response|faster|rows per|per_cpu")
VIRTUAL = "virtual_workers"  # with constant costs, times are equal on all machines


def unmarked(tree: ast.Module) -> Iterator[str]:
    """Yield the claims outside of a call of `timed`, as text."""
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    marked = {
        id(inner)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "timed"
        for inner in ast.walk(call)
    }
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id in CLAIMS and id(call) not in marked:
            yield " ".join(map(ast.unparse, call.args[:2]))


def test_an_unmarked_claim_is_found() -> None:
    tree = ast.parse("a = timed(at_most('CPU', x, 1)), at_most('CPU together', x, 1), equal('rows', y, 0)")
    assert list(unmarked(tree)) == ["'CPU together' x", "'rows' y"]


@pytest.mark.parametrize("module", sorted(BENCH.rglob("*.py")), ids=lambda path: str(path.relative_to(BENCH)))
def test_each_claim_about_measured_time_is_marked(module: Path) -> None:
    text = module.read_text()
    if VIRTUAL not in text:
        assert [claim for claim in unmarked(ast.parse(text)) if OF_TIME.search(claim)] == []
