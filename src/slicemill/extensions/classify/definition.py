"""Catalog definition of a classifier: features, training data and options (M49)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from slicemill.catalog.extended import ComputedStream
from slicemill.time import format_us
from slicemill.types import Schema

POLICIES = ("bff", "bff_pruned", "hvwt", "loadstar", "q_bayes", "random")


@dataclass(frozen=True, slots=True)
class Features:
    """Columns of one input stream that a classifier uses as features."""

    stream: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClassifierOptions:
    """Options of CREATE CLASSIFIER.

    `capacity` is the number of observed values per time unit. The Markov chains count the latest `window`
    transitions per feature, or with None only the transitions of the training data. `lags` is the number of
    earlier time units whose values are features too. `observe` names a Python function that computes a number
    from a stream's value, and is called for observed values only. With `lag_us`, the capacity decreases under
    load, so that decisions are not late.
    """

    capacity: int
    policy: str = "bff"
    bins: int = 20
    samples: int = 10
    lags: int = 0
    window: int | None = None
    seed: int = 1
    observe: str | None = None
    lag_us: int | None = None


@dataclass(frozen=True, slots=True)
class Classifier(ComputedStream):
    """Definition of `CREATE CLASSIFIER`: a stream with one class per key value and time unit.

    Each value of the column `key` is one object to classify. The streams and the training table have this
    column. Without a key there is a single object. The rows of the table `training` are examples: features,
    and the class in the column `label`. `every_us` is the length of a time unit.
    """

    name: str
    inputs: tuple[Features, ...]
    key: str | None
    label: str
    training: str
    every_us: int
    options: ClassifierOptions
    schema: Schema
    kind: ClassVar[str] = "CLASSIFIER"
    operator: ClassVar[str] = "slicemill.extensions.classify.spec:Classify"

    @property
    def reads(self) -> tuple[str, ...]:
        return (*(entry.stream for entry in self.inputs), self.training)

    @property
    def external(self) -> str | None:
        return self.options.observe

    @property
    def summary(self) -> str:
        observed = f"observes {self.options.capacity} values every {format_us(self.every_us)}"
        features = f"{', '.join(self.schema.names)}; of {', '.join(self.features)}"
        return f"{features}; {observed}, policy {self.options.policy}; learnt from {self.training}"

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(column for entry in self.inputs for column in entry.columns)

    def read(self, port: int) -> frozenset[str]:
        """Return the columns that the classifier reads from an input. The last input is the table."""
        key = () if self.key is None else (self.key,)
        columns = self.inputs[port].columns if port < len(self.inputs) else (*self.features, self.label)
        return frozenset((*key, *columns))
