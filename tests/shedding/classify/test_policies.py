"""Observations chosen by policies, against their definitions in plain Python over the same samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.extensions.classify.model import (
    NaiveBayes,
    TimeUnit,
    decide,
    decide_all,
    observe_stream,
    unobserved_arrays,
    zero_one,
)
from slicemill.extensions.classify.policies import (
    POLICIES,
    BestFeatureFirst,
    Hvwt,
    LoadStar,
    Pruning,
    gains,
    qualities,
)

TASKS, FEATURES, CLASSES, SAMPLES = 4, 3, 2, 6
Floats = npt.NDArray[np.float64]


def unit(seed: int, capacity: int, missing: float = 0.0) -> TimeUnit:
    """Return a random time unit; its values differ from its samples."""
    random = np.random.default_rng(seed)
    mean = random.random((TASKS, FEATURES, CLASSES))
    model = NaiveBayes(
        np.log(random.dirichlet(np.ones(CLASSES), TASKS)),
        mean,
        np.full_like(mean, 0.3),
        zero_one(CLASSES),
    )
    drawn = random.random((SAMPLES, TASKS, FEATURES))
    sampled = np.ascontiguousarray(np.moveaxis(model.log_density(drawn), 0, -1))
    expected = model.log_density(drawn.mean(axis=0))
    values = random.random((TASKS, FEATURES))
    values[random.random(values.shape) < missing] = np.nan
    base = np.repeat(model.log_prior[..., np.newaxis], SAMPLES, axis=-1)
    view = unobserved_arrays(model, base, sampled, expected, values)
    return TimeUnit(view, capacity, random.random((TASKS, FEATURES)), np.random.default_rng(seed))


seeds = st.integers(0, 10_000)
capacities = st.integers(0, TASKS * FEATURES + 2)


@settings(max_examples=40)
@given(seeds, capacities, st.sampled_from([0.0, 0.4]), st.sampled_from(sorted(POLICIES)))
def test_observations_use_the_capacity_and_never_exceed_it(
    seed: int, capacity: int, missing: float, name: str
) -> None:
    one = unit(seed, capacity, missing)
    POLICIES[name]().choose(one)
    observed, present = one.view.observed, one.view.present
    assert not (observed & ~present).any()
    assert observed.sum() == min(capacity, present.sum())
    known = (observed | ~present).all(axis=1) & present.all(axis=1)
    assert (decide_all(one.view)[2][known] == 0).all()


def plain_q(one: TimeUnit, t: int, f: int, observational: bool) -> float:
    view = one.view
    before = decide(view.joint[t], view.loss)
    sampled = view.sampled[t].copy()
    sampled[f] = view.expected[t, f][:, np.newaxis]
    after = decide(view.base[t] + sampled.sum(axis=0), view.loss)
    return float(before[2] - after[2] if observational else before[1] - after[1])


@settings(max_examples=40)
@given(seeds, capacities, st.booleans())
def test_the_greedy_policy_repeatedly_chooses_the_best_stream(
    seed: int, capacity: int, observational: bool
) -> None:
    chosen, slow = unit(seed, capacity), unit(seed, capacity)
    BestFeatureFirst(observational).choose(chosen)
    certain = 0
    for _ in range(capacity):
        left = [(int(t), int(f)) for t, f in np.argwhere(~slow.view.observed)]
        by_quality = {stream: plain_q(slow, *stream, observational) for stream in left}
        best = max(by_quality, key=by_quality.__getitem__, default=None)
        # Nearly equal streams may be in either order, and without a gain the rest is random.
        near = [q for q in by_quality.values() if best is not None and q > by_quality[best] - 1e-9]
        if best is None or by_quality[best] <= 1e-12 or len(near) > 1:
            break
        observe_stream(slow.view, *best)
        certain += 1
    assert not (slow.view.observed & ~chosen.view.observed).any()
    assert np.count_nonzero(slow.view.observed) == certain


@settings(max_examples=20)
@given(seeds, st.booleans())
def test_the_quality_of_an_observed_stream_is_zero(seed: int, observational: bool) -> None:
    one = unit(seed, 3)
    BestFeatureFirst(observational).choose(one)
    found = qualities(one.view, observational)
    assert (found[one.view.observed] == 0).all()
    for t, f in np.argwhere(~one.view.observed):
        assert found[t, f] == pytest.approx(plain_q(one, t, f, observational), abs=1e-9)


@settings(max_examples=40)
@given(seeds, capacities)
def test_hvwt_chooses_the_widest_stream_of_the_task_with_the_greatest_risk(seed: int, capacity: int) -> None:
    chosen, slow = unit(seed, capacity), unit(seed, capacity)
    Hvwt().choose(chosen)
    for _ in range(min(capacity, TASKS * FEATURES)):
        risks = decide_all(slow.view)[2]
        risks[slow.view.observed.all(axis=1)] = -1
        worst = int(risks.argmax())
        if np.count_nonzero(risks == risks[worst]) > 1:
            break  # Ties are broken at random.
        variance = np.where(slow.view.observed[worst], -1, slow.variance[worst])
        observe_stream(slow.view, worst, int(variance.argmax()))
    assert not (slow.view.observed & ~chosen.view.observed).any()


@settings(max_examples=40)
@given(seeds, capacities)
def test_loadstar_chooses_whole_tasks_by_their_gain(seed: int, capacity: int) -> None:
    one = unit(seed, capacity)
    gain = gains(one.view)
    for t in range(TASKS):
        known = one.view.base[t] + one.view.expected[t].sum(axis=0)[:, np.newaxis]
        difference = decide(one.view.joint[t], one.view.loss)[1] - decide(known, one.view.loss)[1]
        assert gain[t] == pytest.approx(difference, abs=1e-12)
    LoadStar().choose(one)
    counts = one.view.observed.sum(axis=1)[np.argsort(-gain, kind="stable")].tolist()
    assert counts == [min(max(capacity - FEATURES * i, 0), FEATURES) for i in range(TASKS)]


def test_the_random_policy_chooses_all_streams_equally_often() -> None:
    counts = np.zeros((TASKS, FEATURES))
    for seed in range(600):
        one = unit(seed, 4)
        POLICIES["random"]().choose(one)
        counts += one.view.observed
    assert counts.sum() == 4 * 600
    assert counts / 600 == pytest.approx(np.full((TASKS, FEATURES), 1 / 3), abs=0.08)


def test_pruning_skips_tasks_and_streams_with_little_gain() -> None:
    pruning = Pruning(window=2)
    everything = np.ones((2, 2), np.bool_)
    risks = np.array([0.5, 0.001])
    quality = np.array([[0.4, 0.002], [0.3, 0.2]])
    for _ in range(2):
        assert pruning.candidates(risks, everything).all()
        pruning.record(quality, everything)
    # Threshold: the 20th percentile of these Q, 0.1208. Task 1 has less risk than that, stream 1 less Q.
    assert pruning.candidates(risks, everything).tolist() == [[True, False], [False, False]]
    # The risk of task 0 has changed, so its streams are evaluated again.
    assert pruning.candidates(np.array([0.9, 0.001]), everything).tolist() == [[True, True], [False, False]]


def test_pruning_evaluates_fewer_streams_and_observes_as_many() -> None:
    pruned, weighed = BestFeatureFirst(observational=True, pruning=Pruning(window=5)), []
    for seed in range(40):
        one = unit(seed, 4)
        pruned.choose(one)
        assert one.view.observed.sum() == 4
        assert pruned._pruning is not None
        weighed.append(pruned._pruning.candidates(decide_all(unit(seed, 4).view)[2], one.view.present).mean())
    assert np.mean(weighed[10:]) < 0.9
