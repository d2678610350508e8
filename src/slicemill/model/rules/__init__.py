"""Rewrite rules of flows (C22), one per module: what a rule gives has the same value, or it gives None.

R9, which merges equal parts, is about graphs, and about the cores of models (`model.collect`); the others are
about flows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from slicemill.model.flow import Flow, FlowStep
from slicemill.model.rules import (
    accumulate_merged,
    accumulate_permuted,
    filter_as_transform,
    fuse_transforms,
    merge_equal,
    pull_factor,
    search_transformed,
    transform_filtered,
    transform_merged,
    transform_permuted,
)

Rule = Callable[[FlowStep], Flow | None]


def rule_words(name: str) -> str:
    """What a rule says, in one line."""
    module = merge_equal.__name__ if name == "R9" else RULES[name].__module__
    words = str(sys.modules[module].__doc__).partition("\n")[0]
    return words.partition(": ")[2].strip()


RULES: dict[str, Rule] = {
    "R1": fuse_transforms.rewrite,
    "R2": transform_merged.rewrite,
    "R3": accumulate_merged.rewrite,
    "R4": transform_filtered.rewrite,
    "R5": transform_permuted.rewrite,
    "R6": accumulate_permuted.rewrite,
    "R7": search_transformed.rewrite,
    "R8": filter_as_transform.rewrite,
    "R10": pull_factor.rewrite,
}
