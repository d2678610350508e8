"""Aggregate spread(x): the greatest value of a window minus the least."""

from __future__ import annotations

from dataclasses import dataclass

from acme_sampling import SPREAD

from slicemill.aggregates.definition import Returned
from slicemill.aggregates.frames import Args
from slicemill.catalog.aggregates import AggregateDefinition, Formula
from slicemill.catalog.extended import CalledDefinition
from slicemill.types import DOUBLE, Column, Schema

NAMES = ("spread",)


@dataclass(frozen=True, slots=True)
class Spread(Formula):
    """The only formula of this extension."""

    provider = SPREAD


@dataclass(frozen=True)
class SpreadDefinition(CalledDefinition):
    name: str
    kind = "SPREAD"

    @property
    def versions(self) -> tuple[AggregateDefinition, AggregateDefinition]:
        arguments, returns = Schema((Column("x", DOUBLE),)), Schema((Column(self.name, DOUBLE),))
        base, window = (
            AggregateDefinition(
                self.name, arguments, returns, window=windowed, algebraic=False, formulas=(Spread(),)
            )
            for windowed in (False, True)
        )
        return base, window


def predefined(name: str) -> SpreadDefinition:
    return SpreadDefinition(name)


class SpreadAccumulator:
    """Base and window version; the state is the list of values, oldest first."""

    def __init__(self, definition: AggregateDefinition) -> None:
        self._windowed = definition.window
        self._values: list[float] = []

    def initialize(self, args: Args) -> Returned:
        return self.iterate(args)

    def iterate(self, args: Args) -> Returned:
        self._values.append(float(str(args[0])))
        return self.terminate() if self._windowed else []

    def expire(self, args: Args) -> Returned:
        del self._values[0]
        return []

    def terminate(self) -> Returned:
        return [max(self._values) - min(self._values) if self._values else None]

    def state(self) -> list[float]:
        return self._values

    def restore(self, state: list[float]) -> None:
        self._values = state
