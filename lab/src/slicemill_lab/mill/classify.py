"""Tasks, features and error rates of policies for mill-E16 to mill-E19 (M49-M57, X9, X18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slicemill.extensions.classify.classifier import Settings, TaskClassifier
from slicemill.extensions.classify.model import Bins, MarkovChains, NaiveBayes, bins_between, chains, zero_one
from slicemill.extensions.classify.policies import POLICIES
from slicemill.kernels.arrays import Floats, Int64s

RANDOM, LOADSTAR, Q_BAYES, BFF, HVWT = "random", "loadstar", "q_bayes", "bff", "hvwt"
SHED_PERCENT = (10, 20, 30, 40, 50, 60, 70, 80, 90)

BINS = 20
SAMPLES = 10
MEANS = (0.3, 0.7)
DEVIATION = 0.2
FAST, SLOW = 0.3, 0.005


@dataclass(frozen=True, slots=True)
class Problem:
    """Classification problem: test values (time, n, k), true classes (time, n), and the learnt model.

    `last` are the values of the time unit before the first.
    """

    values: Floats
    truth: Int64s
    model: NaiveBayes
    bins: Bins
    chains: MarkovChains
    last: Floats
    lags: int = 0

    @property
    def streams(self) -> int:
        return int(self.last.size)


def walked(seed: int, units: int, tasks: int = 25, features: int = 4) -> tuple[Floats, NaiveBayes]:
    """Return features as random walks, in normal distributions per class: (time, n, k), and their model.

    Half of the features are low in one class and high in the other, half the other way round. Half move fast,
    half slowly; the halves are crossed. Walks are reflected at 0 and 1. The true class is the more likely
    one.
    """
    random = np.random.default_rng(seed)
    numbers = np.arange(features)
    sigma = np.where(numbers % 2 == 0, FAST, SLOW)
    swapped = numbers // 2 % 2 == 1
    mean = np.where(swapped[:, np.newaxis], MEANS[::-1], MEANS)
    model = NaiveBayes(
        np.log(np.full((tasks, 2), 0.5)),
        np.tile(mean, (tasks, 1, 1)),
        np.full((tasks, features, 2), DEVIATION),
        zero_one(2),
    )
    steps = random.normal(size=(units, tasks, features)) * sigma
    steps[0] += random.random((tasks, features))
    # A free walk is folded at every integer, which reflects it at 0 and 1.
    return 1 - np.abs(1 - np.mod(steps.cumsum(axis=0), 2)), model


def walks(seed: int, train: int, test: int, tasks: int = 25, features: int = 4) -> Problem:
    """Return tasks with random walks as features. Their movement is learnt."""
    values, model = walked(seed, train + test, tasks, features)
    zeros = np.zeros((tasks, features))
    bins = bins_between(zeros, zeros + 1, BINS)
    learnt = chains(bins.of(values[:train]), BINS)
    tested = values[train:]
    return Problem(tested, model.classify(tested), model, bins, learnt, values[train - 1])


def error(problem: Problem, policy: str, shed_percent: float, seed: int) -> float:
    """Return the share of wrong decisions if `shed_percent` of the streams are not observed."""
    capacity = round(problem.streams * (1 - shed_percent / 100))
    settings = Settings(capacity, SAMPLES, problem.lags, seed=seed)
    classifier = TaskClassifier(
        problem.model, problem.bins, problem.chains, POLICIES[policy](), settings, problem.last
    )
    said = np.array([classifier.step(values).classes for values in problem.values])
    return float(np.mean(said != problem.truth))


def errors(
    problems: Sequence[Problem], policies: Sequence[str], shed_percent: Sequence[int], seed: int
) -> dict[str, list[float]]:
    """Return the mean error over the problems, by policy and share shed."""
    return {
        policy: [
            float(np.mean([error(problem, policy, percent, seed) for problem in problems]))
            for percent in shed_percent
        ]
        for policy in policies
    }


def over_random(by_policy: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return errors relative to those of random observation."""
    return {
        policy: [one / base for one, base in zip(line, by_policy[RANDOM], strict=True)]
        for policy, line in by_policy.items()
    }
