"""Policies by the names that ESL and the lab call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slicemill.shedding.classify.policies.greedy import Greedy
from slicemill.shedding.classify.policies.hvwt import Hvwt
from slicemill.shedding.classify.policies.loadstar import LoadStar
from slicemill.shedding.classify.policies.policy import Policy
from slicemill.shedding.classify.policies.pruning import Pruning
from slicemill.shedding.classify.policies.uniform import Uniform

POLICIES: Mapping[str, Callable[[], Policy]] = {
    "bff": lambda: Greedy(observational=True),
    "bff_pruned": lambda: Greedy(observational=True, pruning=Pruning()),
    "hvwt": Hvwt,
    "loadstar": LoadStar,
    "q_bayes": lambda: Greedy(observational=False),
    "random": Uniform,
}
