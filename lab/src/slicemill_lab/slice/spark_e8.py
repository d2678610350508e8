"""slice-spark-E8: state of three queries on the engine with and without slicing (state-slice E8).

The queries of slice-E8 with four methods (see `joins_on_engine`). Measured are rows and bytes of state when
all windows are full.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slicemill_lab.claims import Claim, at_least, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.joins import mean, saved
from slicemill_lab.slice.joins_on_engine import (
    RIVALS,
    SETTINGS,
    WAYS,
    JoinsOnEngine,
    SparkSetting,
    modelled,
    on_engine,
)


def run(seed: int, scale: Scale) -> Result:
    """Measure the state of each method in each setting."""
    found = {setting: {way: on_engine(setting, way, seed) for way in WAYS} for setting in SETTINGS[scale]}
    figures = {
        str(setting): {
            way: {
                "rows in state": one.rows,
                "bytes in state": one.bytes,
                "results": {query: count for query, (count, _) in sorted(one.results.items())},
                "rows in state, by the model": round(modelled(setting, way)),
            }
            for way, one in ways.items()
        }
        for setting, ways in found.items()
    }
    measured = {
        f"rows in state, below {way}": [mean([_saved(ways, way) for ways in found.values()])]
        for way in ("pull-up", "push-down")
    }
    return Result(_claims(found), {"settings": figures}, measured)


def plot(result: Result, path: Path) -> None:
    """Plot rows in state by method over the settings."""
    settings = result.figures["settings"]
    numbers = list(range(1, len(settings) + 1))
    draw_curves(
        path,
        {way: curve(numbers, [[found[way]["rows in state"] for found in settings.values()]]) for way in WAYS},
        title="Also set at a time, slices hold the least",
        x_label="setting",
        y_label="rows in state",
    )


EXPERIMENT = Experiment(
    id="slice-spark-E8",
    title="State of three queries on the engine: slices and other ways",
    run=run,
    plot=plot,
    substrate="engine",
)


def _saved(ways: Mapping[str, JoinsOnEngine], rival: str) -> float:
    return saved(ways["state-slice"].rows, ways[rival].rows)


def _claims(found: Mapping[SparkSetting, Mapping[str, JoinsOnEngine]]) -> tuple[Claim, ...]:
    pairs = [(setting, way) for setting in found for way in RIVALS]
    rows = [_saved(found[one], way) for one, way in pairs]
    bytes_ = [saved(found[one]["state-slice"].bytes, found[one][way].bytes) for one, way in pairs]
    wrong = sum(found[one][way].results != found[one]["state-slice"].results for one, way in pairs)
    return (
        at_most("settings and ways in which some query's results differ", wrong, 0),
        at_least(
            "rows in state: least saving against any way, %",
            min(rows),
            0,
            "Printed: always the lowest. Where a cut would free less than an eighth of the rows it is not "
            "made: with windows of 20 to 30 s and Ss 0.8, and state is that of pull-up.",
        ),
        at_least("bytes in state: least saving against any way, %", min(bytes_), 0),
    )
