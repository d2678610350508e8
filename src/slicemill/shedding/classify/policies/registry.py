"""Policies by the names that ESL and the lab call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slicemill.shedding.classify.policies.greedy import BestFeatureFirst
from slicemill.shedding.classify.policies.hvwt import Hvwt
from slicemill.shedding.classify.policies.loadstar import LoadStar
from slicemill.shedding.classify.policies.policy import ObservationPolicy
from slicemill.shedding.classify.policies.pruning import Pruning
from slicemill.shedding.classify.policies.uniform import Uniform

POLICIES: Mapping[str, Callable[[], ObservationPolicy]] = {
    "bff": lambda: BestFeatureFirst(observational=True),
    "bff_pruned": lambda: BestFeatureFirst(observational=True, pruning=Pruning()),
    "hvwt": Hvwt,
    "loadstar": LoadStar,
    "q_bayes": lambda: BestFeatureFirst(observational=False),
    "random": Uniform,
}
