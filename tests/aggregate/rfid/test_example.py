"""The aggregates of examples/rfid.esl give the results of the published algorithms (M42-M47, X8)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.connectors.generators.rfid import Tags
from slicemill.extensions.rfid import baseline, case_numbers, eager, is_new, lazy, number_keys
from slicemill.kernels.arrays import Int64s
from slicemill.plan.build import build_graph
from slicemill_oracle.engine import Engine
from slicemill_oracle.runner import run_script
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "examples" / "rfid.esl").read_text(encoding="utf-8")
SECOND_US = 1_000_000
WINDOW_US = 2 * SECOND_US

Rows = list[tuple[int, ...]]


@pytest.fixture(scope="module")
def results() -> dict[str, Rows]:
    done = run_script(bind(TEXT).catalog, ROOT)
    return {query.name: [timed.row for timed in query.rows] for query in done.queries}  # type: ignore[misc]


@pytest.fixture(scope="module")
def readings() -> Int64s:
    """Return the columns reader, tag, at."""
    columns = Tags(per_second=2, noise=0.1, readers=2, seconds=20).all_readings()
    return np.stack([columns["reader"], columns["tag"], columns["at"]], axis=1)


def key(readings: Int64s) -> Int64s:
    _, keys = np.unique(readings[:, :2], axis=0, return_inverse=True)
    return keys.ravel()


def rows(readings: Int64s) -> Rows:
    return [tuple(row) for row in readings.tolist()]


def clean(readings: Int64s) -> Int64s:
    return readings[lazy(readings[:, 2], key(readings), WINDOW_US, 6).readings]


def test_denoising_queries_emit_the_readings_of_the_algorithms(
    results: dict[str, Rows], readings: Int64s
) -> None:
    at_once = readings[baseline(readings[:, 2], key(readings), WINDOW_US, 6, ordered=False).readings]
    assert results["clean_at_once"] == rows(at_once)
    assert results["clean_lazily"] == results["clean_eagerly"] == rows(clean(readings))
    assert results["clean_at_once"] != results["clean_lazily"], "not even out of order: this shows nothing"


def test_products_are_deduplicated_and_packed_into_cases(results: dict[str, Rows], readings: Int64s) -> None:
    products = clean(readings)
    products = products[is_new(products[:, 2], key(products), SECOND_US // 2)]
    numbers = np.empty(len(products), np.int64)
    for reader in (1, 2):
        numbers[products[:, 0] == reader] = case_numbers(products[products[:, 0] == reader, 2], SECOND_US)
    assert results["packed"] == rows(np.column_stack([products, numbers]))
    assert numbers.max() > 3


def test_a_visit_ends_a_second_after_its_last_reading(results: dict[str, Rows], readings: Int64s) -> None:
    kept = clean(readings)
    keys, n_keys = number_keys(key(kept))
    visits = []
    for one in range(n_keys):
        of_key = kept[keys == one]
        cases = case_numbers(of_key[:, 2], SECOND_US)
        for number in range(1, cases[-1] + 1):
            visit = of_key[cases == number]
            visits.append((*visit[0].tolist(), int(visit[-1, 2]), len(visit)))
    assert sorted(results["visits"]) == sorted(visits)


def test_an_item_that_leaves_without_a_person_is_stolen(results: dict[str, Rows]) -> None:
    assert [row[0] for row in results["theft"]] == ["camera", "lamp"]


@st.composite
def noisy(draw: st.DrawFn) -> Int64s:
    steps = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2), st.integers(1, 2)), max_size=20))
    table = np.array(steps, np.int64).reshape(-1, 3)
    return np.column_stack([table[:, 1:], np.cumsum(table[:, 0]) * SECOND_US // 2])


@settings(max_examples=25)
@given(noisy(), st.integers(1, 4))
def test_esl_queries_and_algorithms_agree_on_random_readings(readings: Int64s, threshold: int) -> None:
    catalog = bind(TEXT.replace(">= 6", f">= {threshold}")).catalog
    engine = Engine(translate(build_graph(catalog), catalog, {}))
    engine.feed("reading", [Arrival(row[2], row, row[2]) for row in rows(readings)])
    engine.run()
    at, keys = readings[:, 2], key(readings)
    for query, found in (
        ("clean_at_once", baseline(at, keys, WINDOW_US, threshold, ordered=False)),
        ("clean_lazily", lazy(at, keys, WINDOW_US, threshold)),
        ("clean_eagerly", eager(at, keys, WINDOW_US, threshold)),
    ):
        assert [timed.row for timed in engine.results(query)] == rows(readings[found.readings]), query
