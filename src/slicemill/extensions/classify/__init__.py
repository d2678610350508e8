"""Classification of many sources, of which only some can be observed (M49-M57).

There are n tasks, each with k features. Each feature arrives as a stream of its own. In a time unit at
most `capacity` of the n·k streams can be observed, yet each task needs a decision. Features that are not
observed are predicted by a Markov chain. A decision has an expected risk. A policy observes the streams
for which that lowers the risk most (`policies`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slicemill.extensions.classify.classifier import Decisions, Settings, TaskClassifier
    from slicemill.extensions.classify.model import NaiveBayes, learn

__all__ = ["Decisions", "NaiveBayes", "Settings", "TaskClassifier", "learn"]

_LAZY = {
    "Decisions": "classifier",
    "NaiveBayes": "model",
    "Settings": "classifier",
    "TaskClassifier": "classifier",
    "learn": "model",
}


def __getattr__(name: str) -> object:
    # `slicemill check` loads the registration, and does not need NumPy.
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
