"""Classifying from many sources when only some of them can be looked at (M49-M57).

There are n tasks, each with k features, and every feature comes as a stream of its own. In a time unit no
more than `capacity` of the n·k streams can be looked at, yet each task needs its decision. What is not looked
at is predicted (`markov`), a decision has an expected risk (`risk`), and a policy (`policies`) looks where
that is expected to lower the risk most.
"""

from slicemill.shedding.classify.classifier import Decisions, Settings, TaskClassifier
from slicemill.shedding.classify.model import NaiveBayes, learn

__all__ = ["Decisions", "NaiveBayes", "Settings", "TaskClassifier", "learn"]
