"""slice-E9: service rate of three queries with and without slicing (state-slice E9, S15).

The queries of slice-E8. The service rate is in tuples per million comparisons. The savings of slicing grow
with the square of the rate, its costs (more purging, unions) linearly with the rate, so the gap widens.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path

from slicemill_lab.claims import Claim, ascending, at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.joins import (
    JOIN_SELECTIVITIES,
    RATES,
    WAYS,
    WINDOWS_S,
    JoinSetting,
    by_panel,
    mean,
    measured,
    modelled,
    more,
)

PANELS = {
    **{panel: JoinSetting(windows, 0.5, 0.1) for panel, windows in zip("abc", WINDOWS_S, strict=True)},
    **{panel: JoinSetting("uniform", 0.5, sj) for panel, sj in zip("def", JOIN_SELECTIVITIES, strict=True)},
}
"""a-c vary the windows, d-f the join selectivity; f has many matches."""
RIVALS = WAYS[1:]
FEW_MATCHES = "d"


def run(seed: int, scale: Scale) -> Result:
    """Measure the service rate of each method, by panel and rate."""
    rates = RATES[scale]
    service = by_panel(PANELS, scale, seed, lambda run: run.service_rate)
    ahead = {
        panel: {
            way: [more(a, b) for a, b in zip(lines["state-slice"], lines[way], strict=True)] for way in RIVALS
        }
        for panel, lines in service.items()
    }
    published = {way: _ahead_at_published_sizes(way) for way in RIVALS}
    few_matches = {
        way: one.service_rate for way, one in measured(PANELS[FEW_MATCHES], 20, "full", seed).items()
    }
    figures = {
        "rates": list(rates),
        "panels": {panel: str(setting) for panel, setting in PANELS.items()},
        "tuples_per_million_comparisons": service,
        "ahead_percent": ahead,
        "few_matches_published_windows": few_matches,
        "model_least_ahead_percent": published,
    }
    best = min(ahead["f"][way][-1] for way in RIVALS)
    return Result(
        _claims(ahead, few_matches, published, rates), figures, {"ahead of the better rival": [best / 100]}
    )


def plot(result: Result, path: Path) -> None:
    """How far slices are ahead, against rate."""
    draw_curves(
        path,
        {
            f"of {way}, {result.figures['panels'][panel]}": curve(
                result.figures["rates"], [result.figures["ahead_percent"][panel][way]]
            )
            for panel in "def"
            for way in RIVALS
        },
        title="The higher the rate and the more matches, the further slices are ahead",
        x_label="rate of each stream [tuples/s]",
        y_label="service rate above the other way [%]",
    )


EXPERIMENT = Experiment(
    id="slice-E9", title="Service rate of three queries: slices, pull-up, push-down", run=run, plot=plot
)


def _claims(
    ahead: Mapping[str, Mapping[str, list[float]]],
    few_matches: Mapping[str, float],
    published: Mapping[str, float],
    rates: tuple[int, ...],
) -> tuple[Claim, ...]:
    few = ahead[FEW_MATCHES]["push-down"]
    matching = [
        value for panel, lines in ahead.items() if panel != FEW_MATCHES for value in lines["push-down"]
    ]
    by_rate = {
        way: {f"{rate} t/s": mean([ahead[panel][way][n] for panel in PANELS]) for n, rate in enumerate(rates)}
        for way in RIVALS
    }
    best = [ahead["f"][way][-1] for way in RIVALS]
    return (
        at_least(
            "ahead of pull-up everywhere: least, %", min(min(one["pull-up"]) for one in ahead.values()), 0
        ),
        at_least(
            "ahead of push-down where Sj is 0.1 or more: least, %",
            min(matching),
            0,
            note=f"At Sj 0.025 they are {min(few):.1f} to {max(few):.1f} % ahead. The shorter the windows, "
            "the more purging weighs against the few results that need no routing.",
        ),
        at_least(
            "ahead of push-down at Sj 0.025 with the published windows, 20 t/s, %",
            more(few_matches["state-slice"], few_matches["push-down"]),
            0,
        ),
        at_least(
            "by the model ahead of both at the published sizes, all 27 settings, rates 20 to 80: least, %",
            min(published.values()),
            0,
            note="A selection that several queries share is charged once per result, for all ways.",
        ),
        ascending("the gap to pull-up widens with the rate (mean, %)", by_rate["pull-up"]),
        ascending("the gap to push-down widens with the rate (mean, %)", by_rate["push-down"]),
        at_least(
            "with many matches, at the highest rate, ahead of the better rival, %",
            min(best),
            0,
            note=f"Printed: up to 40 % better. Against pull-up it is {max(best):.0f} %.",
        ),
    )


def _ahead_at_published_sizes(way: str) -> float:
    """Return the least lead of slices over a rival by the model, in percent of comparisons."""
    settings = [JoinSetting(*one) for one in product(WINDOWS_S, (0.2, 0.5, 0.8), JOIN_SELECTIVITIES)]
    costs = [modelled(setting, rate, "full") for setting in settings for rate in RATES["full"]]
    return min(more(cost[way].cpu, cost["state-slice"].cpu) for cost in costs)
