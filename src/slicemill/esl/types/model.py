"""Models, bound and typed: a formula that stands where an aggregate does (C20)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from slicemill.esl.types.aggregate import AggregateDefinition
from slicemill.esl.types.builtins import BUILTINS
from slicemill.esl.types.schema import BOOLEAN, DOUBLE, TIMESTAMP, Column, Schema
from slicemill.model.formulas import CATALOGUE

if TYPE_CHECKING:
    from slicemill.model.model import Model

# Everybody has these without declaring them; aggregates that are built in keep their names.
PREDEFINED = {name: text for name, text in CATALOGUE.items() if name not in BUILTINS}


@dataclass(frozen=True)
class ModelDefinition:
    """One CREATE MODEL."""

    name: str
    model: Model

    @property
    def arguments(self) -> Schema:
        """Its parameters; a model that uses age takes one argument more: when the tuple was."""
        columns = [Column(parameter, DOUBLE) for parameter in self.model.parameters]
        if self.model.uses_age:
            columns.append(Column("at", TIMESTAMP))
        return Schema(tuple(columns))

    @property
    def versions(self) -> tuple[AggregateDefinition, AggregateDefinition]:
        """The base and the window version of the aggregate that it is."""
        returns = Schema((Column(self.name, BOOLEAN if self.model.is_condition else DOUBLE),))
        base, window = (
            AggregateDefinition(
                self.name, self.arguments, returns, window=version, algebraic=False, models=(self.model,)
            )
            for version in (False, True)
        )
        return base, window


@cache
def predefined(name: str) -> ModelDefinition | None:
    """The model that everybody has by that name."""
    text = PREDEFINED.get(name.lower())
    if text is None:
        return None
    from slicemill.model.model import expression

    return ModelDefinition(name.lower(), expression(text))
