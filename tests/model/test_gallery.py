"""The gallery: its page is generated from its scripts, and every model gives the values of NumPy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aggregate.compiler.comparing import tuples_of
from slicemill.aggregates.udf.compiler.layout import PYTHON
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.binder import bind
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import WindowCall
from slicemill.functions.vectors import to_values
from slicemill.operators.window.spec import WindowAggregate
from slicemill.plan.build import build_graph
from slicemill.sql.errors import SourceText
from slicemill.time import END
from slicemill.types import Kind
from support import gallery

Column = NDArray[np.float64]
ROWS = 60


def ramp(x: Column) -> Column:
    return np.arange(1.0, len(x) + 1)


def tone(x: Column, k: int = 3, size: int = 16) -> float:
    angles = 2 * np.pi * k * ramp(x) / size
    return float((np.cos(angles) @ x) ** 2 + (np.sin(angles) @ x) ** 2) / size**2


def fit(x: Column, y: Column) -> float:
    return float(np.polyfit(x, y, 1)[0]) if len(x) > 1 else math.nan


# Oracles by the name of the model, and of its result if it has several; arguments are the window's columns.
ORACLE: dict[str, Callable[..., Any]] = {
    "moving_average": np.mean,
    "weighted_average": lambda x: np.average(x, weights=ramp(x)),
    "exponential_average": lambda x: np.average(x, weights=0.9 ** ramp(x)[::-1]),
    "volume_weighted_price": lambda x, v: np.average(x, weights=v),
    "momentum": lambda x: x[-1] - x[-6] if len(x) > 5 else math.nan,
    "bands.low": lambda x: np.mean(x) - 2 * np.std(x, ddof=1) if len(x) > 1 else math.nan,
    "bands.high": lambda x: np.mean(x) + 2 * np.std(x, ddof=1) if len(x) > 1 else math.nan,
    "z_score": lambda x: (x[-1] - np.mean(x)) / np.std(x, ddof=1) if len(x) > 1 else math.nan,
    "beta": fit,
    "drawdown": lambda x: 1 - x[-1] / np.max(x),
    "oscillator": lambda x: 100 * (x[-1] - np.min(x)) / np.ptp(x) if len(x) > 1 else math.nan,
    "root_mean_square": lambda x: np.sqrt(np.mean(x**2)),
    "crest_factor": lambda x: np.max(np.abs(x)) / np.sqrt(np.mean(x**2)),
    "drift": lambda x: fit(ramp(x), x),
    "median_deviation": lambda x: np.median(np.abs(x - np.median(x))),
    "spread": lambda x: np.quantile(x, 0.9) - np.quantile(x, 0.1),
    "tone": tone,
    "hann": lambda x: (0.5 - 0.5 * np.cos(2 * np.pi * ramp(x) / 16)) @ x,
    "fading_sum": lambda x, at: x @ 0.5 ** ((at[-1] - at) / 4e6),
    "tails": lambda x: np.mean((x - np.mean(x)) ** 4) / np.var(x) ** 2 if len(x) > 1 else math.nan,
    "since_lowest": lambda x: len(x) - 1 - np.argmin(x),
    "loss_rate": lambda x: np.mean(x > 0),
    "jitter": lambda x: np.mean(np.abs(x - np.mean(x))),
    "slowest": lambda x: np.quantile(x, 0.95),
    "dispersion": lambda x: np.var(x, ddof=1) / np.mean(x) if len(x) > 1 else math.nan,
    "fairness": lambda x: np.sum(x) ** 2 / (len(x) * np.sum(x**2)),
    "typical_delay": lambda x: np.exp(np.mean(np.log(x))),
    "mean_rate": lambda x: 1 / np.mean(1 / x),
    "third_largest": lambda x: np.sort(x)[-3] if len(x) > 2 else math.nan,
    "all_there": lambda x: bool(np.all(x == 0)),
} | {f"sizes.bin{k}": lambda x, k=k: np.sum((x >= 400 * k) & (x < 400 * (k + 1))) for k in range(4)}


def calls() -> dict[str, tuple[Any, WindowCall]]:
    """Return every call of the scripts by the name of its model, with the catalog of its script."""
    found = {}
    for script in sorted(gallery.SCRIPTS.glob("*.esl")):
        catalog = bind(SourceText(script.read_text(encoding="utf-8"), script.name)).catalog
        for node in build_graph(catalog):
            if isinstance(node.operator, WindowAggregate):
                for call in node.operator.calls:
                    found[re.sub(r"\[.*\]", "", call.name)] = catalog, call
    return found


CALLS = calls()


def test_the_gallery_page_is_generated_from_thirty_scripts() -> None:
    text, pictures = gallery.page()
    assert len(pictures) == 30
    assert gallery.PAGE.read_text(encoding="utf-8") == text, "run python tests/support/gallery.py"
    drawn = {path.name: path.read_text(encoding="utf-8") for path in gallery.PICTURES.glob("*.svg")}
    assert drawn == pictures, "run python tests/support/gallery.py"
    assert set(CALLS) == set(ORACLE)


@pytest.mark.parametrize("name", ORACLE)
def test_a_gallery_model_gives_the_values_of_numpy(name: str) -> None:
    catalog, call = CALLS[name]
    random = np.random.default_rng(sum(map(ord, name)))
    columns = {
        "price": 100 + random.normal(size=ROWS).cumsum(),
        "volume": random.integers(1, 50, ROWS).astype(float),
        "market": 1000 + random.normal(size=ROWS).cumsum(),
        "value": random.normal(5, 2, ROWS),
        "bytes": random.uniform(40, 1600, ROWS),
        "delay": random.uniform(0.01, 2.0, ROWS),
        "lost": (random.random(ROWS) < 0.05).astype(float),
        "ts": np.cumsum(random.integers(1, 3, ROWS)) * 1_000_000,
    }
    given = [columns[argument.name] for argument in call.arguments if isinstance(argument, ColumnRef)]
    types = [argument.type for argument in call.arguments]
    whole = [type_.kind is Kind.TIMESTAMP for type_ in types]
    rows = [
        (
            int(columns["ts"][r]),
            0,
            *(int(c[r]) if w else float(c[r]) for c, w in zip(given, whole, strict=True)),
        )
        for r in range(ROWS)
    ]
    uda = prepare(call, catalog, forms=(PYTHON,))
    answers = uda.run(uda.start(), tuples_of(rows, types), END)
    found = to_values(answers.columns[0], ROWS)
    assert call.window.extent is not None
    for row, value in enumerate(found):
        begin = max(0, row - call.window.extent)
        wanted = ORACLE[name](*(column[begin : row + 1] for column in given))
        if isinstance(wanted, bool):
            assert value is wanted
        elif math.isnan(wanted):
            assert value is None
        else:
            assert value == pytest.approx(wanted, rel=1e-9, abs=1e-9), row
