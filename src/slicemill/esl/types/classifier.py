"""Classifiers, bound and typed: features, what they are learnt from, how much can be looked at (M49)."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.esl.types.schema import Schema

POLICIES = ("bff", "bff_pruned", "hvwt", "loadstar", "q_bayes", "random")


@dataclass(frozen=True, slots=True)
class Features:
    """Columns of a stream, each a feature of every task."""

    stream: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClassifierOptions:
    """`capacity` values are looked at per time unit. `window` transitions are remembered; None: those learnt.

    `lags`: so many earlier time units are features as well. `observe` names a function in Python that makes
    numbers of what the streams bring, of the values that are looked at and no others. With `lag_us` the
    capacity falls with the load, so that decisions come in time.
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
class Classifier:
    """`CREATE CLASSIFIER`: a stream of decisions, one per task and time unit.

    A task is a value of the column `key`, which all streams and the table have; without a key there is one.
    The rows of the table `training` are examples: features, and the class in the column `label`.
    """

    name: str
    inputs: tuple[Features, ...]
    key: str | None
    label: str
    training: str
    every_us: int
    options: ClassifierOptions
    schema: Schema

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(column for entry in self.inputs for column in entry.columns)

    def read(self, port: int) -> frozenset[str]:
        """The columns that are read of an input; the last input is the table."""
        key = () if self.key is None else (self.key,)
        columns = self.inputs[port].columns if port < len(self.inputs) else (*self.features, self.label)
        return frozenset((*key, *columns))
