"""Definitions of M50 to M52 as in the thesis: sums over every vector of bins, in plain Python.

A task is `prior[c]`, `density[f][c][b]` (of class c at bin b of feature f), `p[f][b]` and `loss[i][j]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

Vector = Sequence[float]


@dataclass(frozen=True)
class Task:
    prior: Vector
    density: Sequence[Sequence[Vector]]
    p: Sequence[Vector]
    loss: Sequence[Vector]

    def vectors(self) -> Iterator[tuple[tuple[int, ...], float]]:
        """Yield all feature vectors with their probabilities; features are independent."""
        for x in product(*(range(len(p)) for p in self.p)):
            weight = math.prod(p[b] for p, b in zip(self.p, x, strict=True))
            if weight:
                yield x, weight

    def posterior(self, x: Sequence[int]) -> list[float]:
        joint = [
            prior * math.prod(density[c][b] for density, b in zip(self.density, x, strict=True))
            for c, prior in enumerate(self.prior)
        ]
        return [one / sum(joint) for one in joint]

    def risk_at(self, said: int, x: Sequence[int]) -> float:
        """Return R(c_i | x), equation 5.1."""
        return sum(self.loss[said][c] * p for c, p in enumerate(self.posterior(x)))

    def risk(self, said: int) -> float:
        """Return R_before(c_i), equation 5.3."""
        return sum(weight * self.risk_at(said, x) for x, weight in self.vectors())

    def best(self) -> int:
        """Return the class of least risk, equation 5.4."""
        return min(range(len(self.prior)), key=self.risk)

    def optimal(self) -> float:
        """Return the optimal risk, the first term of equation 5.10."""
        classes = range(len(self.prior))
        return sum(weight * min(self.risk_at(c, x) for c in classes) for x, weight in self.vectors())

    def observational(self) -> float:
        """Return the observational risk of the decided class, equation 5.11."""
        said, classes = self.best(), range(len(self.prior))
        return sum(
            weight * (self.risk_at(said, x) - min(self.risk_at(c, x) for c in classes))
            for x, weight in self.vectors()
        )

    def knowing(self, feature: int, density: Vector) -> Task:
        """Return the task after an observation of a feature, with its densities in each class."""
        densities, ps = list(self.density), list(self.p)
        densities[feature], ps[feature] = [[one] for one in density], [1.0]
        return replace(self, density=densities, p=ps)

    def q_bayes(self, feature: int, expected: Vector) -> float:
        """Return the quality of a feature by Bayes risk, equation 5.8."""
        after = self.knowing(feature, expected)
        return self.risk(self.best()) - after.risk(after.best())

    def q_obs(self, feature: int, expected: Vector) -> float:
        """Return the quality of a feature by observational risk, equation 5.12."""
        return self.observational() - self.knowing(feature, expected).observational()
