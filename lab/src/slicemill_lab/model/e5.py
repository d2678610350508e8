"""model-E5: exactness of sums over a sliding window (conceptual model CM-E5, C24).

Values span sixteen orders of magnitude and both signs. Sums updated in doubles drift. The kernel's sums,
which keep the rounding error of each addition and restart with each window, do not. Both are compared with
sums of integers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slicemill.aggregates.calls import Tuples
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.extensions.models.binder import with_model
from slicemill.extensions.models.model import expression
from slicemill.functions.vectors import Vector
from slicemill.types import DOUBLE
from slicemill_lab.claims import Claim, at_least, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves

WINDOW = 100
SLIDES: dict[Scale, int] = {"small": 50_000, "full": 10_000_000}
CHUNK = 100_000
LOOKS = 50
_BITS = 100  # values are integer multiples of 2^-100

Floats = NDArray[np.float64]


def run(seed: int, scale: Scale) -> Result:
    """Measure the relative error of both methods at some moments."""
    length = SLIDES[scale]
    random = np.random.default_rng(seed)
    values = random.choice([-1.0, 1.0], length) * 10.0 ** random.uniform(-8, 8, length)
    looks = np.linspace(length // LOOKS, length - 1, LOOKS).astype(np.int64)
    truth = _exact(values, looks)
    errors = {
        "doubles": _relative(_naive(values)[looks], truth),
        "kernel": _relative(_kernel(values)[looks], truth),
    }
    figures = {"window": WINDOW, "slides": looks.tolist(), "relative_error": errors}
    return Result(_claims(errors), figures)


def plot(result: Result, path: Path) -> None:
    """Errors against slides; an error of 0 is drawn as the least that doubles can show."""
    least = float(np.finfo(np.float64).eps) / 2
    draw_curves(
        path,
        {
            name: curve(result.figures["slides"], [[max(error, least) for error in line]])
            for name, line in result.figures["relative_error"].items()
        },
        title="Sums that are updated in doubles drift; sums that keep what is rounded away do not",
        x_label="slides",
        y_label="error relative to the exact sum",
        log_y=True,
    )


EXPERIMENT = Experiment(id="model-E5", title="Exactness of sums while a window slides", run=run, plot=plot)


def _naive(values: Floats) -> Floats:
    """Compute V' = V - leaving + new, in doubles."""
    changes = np.empty(2 * len(values))
    changes[0::2] = np.concatenate([np.zeros(WINDOW), -values[:-WINDOW]])
    changes[1::2] = values
    return np.cumsum(changes)[1::2]


def _kernel(values: Floats) -> Floats:
    catalog = with_model("total", expression("sum(x)"), Catalog())
    columns = catalog.base_aggregates["total"].returns.columns
    arguments = (ColumnRef("x", DOUBLE),)
    over = Window(FrameUnit.ROWS, WINDOW - 1)
    uda = prepare(WindowCall("total", arguments, False, (), over, columns), catalog)
    state, found = uda.start(), []
    for first in range(0, len(values), CHUNK):
        chunk = values[first : first + CHUNK]
        tuples = Tuples(
            [Vector(DOUBLE, chunk)], np.zeros(len(chunk), np.int32), np.zeros(len(chunk), np.int64)
        )
        found.append(np.array(uda.run(state, tuples).columns[0].data))
    return np.concatenate(found)


def _exact(values: Floats, looks: NDArray[np.int64]) -> list[int]:
    """Return the exact sums at those moments, in multiples of 2^-100."""
    found = []
    for look in looks.tolist():
        window = values[max(0, look - WINDOW + 1) : look + 1]
        found.append(sum(_whole(value) for value in window.tolist()))
    return found


def _whole(value: float) -> int:
    above, below = float(value).as_integer_ratio()
    # Doubles from 1e-8 on have no bits below 2^-80.
    return above * ((1 << _BITS) // below)


def _relative(found: Floats, truth: list[int]) -> list[float]:
    pairs = zip(found.tolist(), truth, strict=True)
    return [abs(_whole(value) - exact) / abs(exact) for value, exact in pairs]


def _claims(errors: dict[str, list[float]]) -> tuple[Claim, ...]:
    return (
        at_most(
            "kernel: greatest relative error, against that of one rounding",
            max(errors["kernel"]),
            2.0**-53,
        ),
        at_least(
            "doubles drift: greatest relative error over that of one rounding",
            max(errors["doubles"]) / 2.0**-53,
            1,
        ),
    )
