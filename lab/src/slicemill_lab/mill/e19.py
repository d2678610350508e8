"""mill-E19: long traffic jams on a highway, with only some sensors observed (E19, M57, X22).

The data is synthetic (`connectors.generators.highway`), as the published study's sensors are not available.
There are four segments with 16 streams each: speed, volume and occupancy of the segment, of the two before
and of the two after it, and the hour. The same values of the three previous time units, as observed or
predicted then, are features as well. Three weeks are used for learning, one for testing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from slicemill.connectors.generators.highway import MARGIN, SLOTS_PER_DAY, Highway
from slicemill.extensions.classify.model import bins_between, chains, learn
from slicemill.kernels.arrays import Bools, Floats, Int64s
from slicemill_lab.claims import Claim, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.classify import (
    BFF,
    BINS,
    HVWT,
    LOADSTAR,
    RANDOM,
    SHED_PERCENT,
    Problem,
    errors,
    over_random,
)
from slicemill_lab.plotting import curve, draw_curves

COMPARED = (RANDOM, LOADSTAR, HVWT, BFF)
SEGMENTS = 4
LAGS = 3
TRAIN_DAYS = 21
TEST_DAYS = 7
# Up to this share, the printed claims about HVWT hold here as well.
HALF_PERCENT = 50
SHARES: Mapping[Scale, tuple[int, ...]] = {"small": (50, 80, 90), "full": SHED_PERCENT}
SETS: Mapping[Scale, int] = {"small": 1, "full": 2}


def run(seed: int, scale: Scale) -> Result:
    """Measure errors by policy and share shed, and with all sensors observed."""
    problems = [highway(1000 * seed + number) for number in range(SETS[scale])]
    by_policy = errors(problems, COMPARED, SHARES[scale], seed)
    base = float(np.mean([errors([one], [RANDOM], [0], seed)[RANDOM] for one in problems]))
    ratios = over_random(by_policy)
    figures = {
        "data": "synthetic",
        "shed_percent": list(SHARES[scale]),
        "error": by_policy,
        "error_over_random": ratios,
        "error_of_all": base,
    }
    return Result(_claims(SHARES[scale], by_policy, base), figures)


def plot(result: Result, path: Path) -> None:
    """Errors against the share shed."""
    shares = result.figures["shed_percent"]
    draw_curves(
        path,
        {policy: curve(shares, [line]) for policy, line in result.figures["error"].items()},
        title="Long jams on a synthetic highway: errors when not all sensors are read",
        x_label="streams not looked at [%]",
        y_label="share of decisions that are wrong",
    )


EXPERIMENT = Experiment(
    id="mill-E19",
    title="Traffic jams on a synthetic highway",
    run=run,
    plot=plot,
)


def highway(seed: int) -> Problem:
    """Return a problem with three weeks to learn from, and the following week for testing."""
    road = Highway(segments=SEGMENTS, seed=seed)
    values, labels, first = features_of(road, range(TRAIN_DAYS))
    tested, truth, _ = features_of(road, range(TRAIN_DAYS, TRAIN_DAYS + TEST_DAYS))
    model = learn(_lagged(values), labels[LAGS:], 2)
    bins = bins_between(values.min(axis=0), values.max(axis=0), BINS)
    # Days are generated separately, so the change at midnight is not a move.
    moves = np.broadcast_to(~first[:, np.newaxis, np.newaxis], values.shape)
    learnt = chains(bins.of(values), BINS, moves=moves)
    return Problem(tested, truth, model, bins, learnt, values[-1], LAGS)


def features_of(road: Highway, days: Iterable[int]) -> tuple[Floats, Int64s, Bools]:
    """Return the 16 streams of each segment (time, n, 16), long jams, and the starts of days."""
    values, labels = [], []
    hour = np.arange(SLOTS_PER_DAY) / 12.0
    for day in map(road.day, days):
        around = [
            np.concatenate(
                [measure[:, s : s + 2 * MARGIN + 1] for measure in (day.speed, day.volume, day.occupancy)]
                + [hour[:, np.newaxis]],
                axis=1,
            )
            for s in range(SEGMENTS)
        ]
        values.append(np.stack(around, axis=1))
        labels.append(day.jam[:, MARGIN : MARGIN + SEGMENTS].astype(np.int64))
    first = np.tile(np.arange(SLOTS_PER_DAY) == 0, len(values))
    return np.concatenate(values), np.concatenate(labels), first


def _lagged(values: Floats) -> Floats:
    """Return values of a time unit and of previous ones: (time − lags, n, 16 · (1 + lags))."""
    last = len(values) - LAGS
    return np.concatenate([values[LAGS - lag : LAGS - lag + last] for lag in range(LAGS + 1)], axis=2)


def _claims(shares: tuple[int, ...], by_policy: Mapping[str, list[float]], base: float) -> tuple[Claim, ...]:
    means = {policy: float(np.mean(line)) for policy, line in by_policy.items()}
    half = [place for place, share in enumerate(shares) if share <= HALF_PERCENT]
    up_to = {policy: float(np.mean([line[i] for i in half])) for policy, line in by_policy.items()}
    above = [place for place in range(len(shares)) if place not in half]
    hvwt = {
        other: ", ".join(f"{by_policy[HVWT][i] / by_policy[other][i]:.2f} at {shares[i]} %" for i in above)
        for other in (LOADSTAR, BFF)
    }
    table = "; ".join(
        f"{share} % shed: " + ", ".join(f"{p} {100 * line[i]:.1f} %" for p, line in by_policy.items())
        for i, share in enumerate(shares)
    )
    return (
        at_most(
            "reading all sensors errs less than reading any share at random: its errors over theirs",
            base / min(by_policy[RANDOM]),
            1,
            note=f"It errs in {100 * base:.1f} % of decisions; 4 % is printed. The data is synthetic. Jams "
            "and noise were set so that this is near, and so that never saying jam errs several times as "
            "often; before that, no policy differed from any other.",
        ),
        at_most(
            "BFF is best: its errors over the least of the others', means over the shares shed",
            means[BFF] / min(means[policy] for policy in COMPARED if policy != BFF),
            1,
            note=f"Errors: {table}. Neighbours and earlier time units say much the same, so that little is "
            "lost, and little is to be gained over random, until most streams are shed.",
        ),
        at_most(
            f"HVWT beats LoadStar up to {HALF_PERCENT} % shed: its errors over LoadStar's, means",
            up_to[HVWT] / up_to[LOADSTAR],
            1,
            note=f"Printed without a limit. Above it, its errors over LoadStar's are {hvwt[LOADSTAR]}.",
        ),
        at_most(
            f"HVWT is nearer to BFF than LoadStar up to {HALF_PERCENT} % shed: errors over BFF's, apart",
            abs(up_to[HVWT] / up_to[BFF] - 1) - abs(up_to[LOADSTAR] / up_to[BFF] - 1),
            0,
            note=f"Printed without a limit. Above it, its errors over BFF's are {hvwt[BFF]}: what moves most "
            "here is the noise of the worst sensors, and looking at those says least.",
        ),
    )
