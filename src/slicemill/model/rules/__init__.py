"""Rewrite rules of flows (C22), one per module.

A rule returns a flow with the same value, or None if it does not apply. The first line of a rule's module is
shown to users. R9, which merges equal parts, applies to graphs and to the cores of models (`model.collect`);
the other rules apply to flows.
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
    """Return the one-line description of a rule."""
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
