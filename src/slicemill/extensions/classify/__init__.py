"""CREATE CLASSIFIER: classification of many objects when only some streams can be observed (M49-M57).

There are n classification tasks, each with k features. A classification task is one object to classify: one
value of the PARTITION BY key. Each feature of each task arrives as a stream. In one time unit (the interval
after EVERY) at most `capacity` of the n·k streams can be observed, but every task needs a decision. A Markov
chain predicts the features that are not observed. Each decision has an expected risk. A policy chooses the
streams whose observation reduces this risk most (`policies`).
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
    # Names are imported on access, because `slicemill check` must not import NumPy.
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
