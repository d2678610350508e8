"""Models, bound and typed: a formula that stands where an aggregate does (C20)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from slicemill.esl.types.aggregate import AggregateDefinition
from slicemill.esl.types.builtins import BUILTINS
from slicemill.esl.types.schema import BOOLEAN, DOUBLE, TIMESTAMP, Column, Schema
from slicemill.model.formulas import CATALOGUE
from slicemill.model.terms import plain_number

if TYPE_CHECKING:
    from slicemill.model.model import Model

# Everybody has these without declaring them; aggregates that are built in keep their names.
PREDEFINED = {name: text for name, text in CATALOGUE.items() if name not in BUILTINS}


@dataclass(frozen=True)
class ModelDefinition:
    """One CREATE MODEL; `letters` is the paper's form, if that was written, which `rules` made shorter."""

    name: str
    model: Model
    letters: str = ""
    rules: tuple[str, ...] = ()

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


@dataclass(frozen=True)
class ModelResult:
    """One column of what a model gives; `index` is the number that the column has in its row, by name."""

    column: str
    text: str
    index: tuple[tuple[str, Fraction], ...] = ()


@dataclass(frozen=True)
class ModelTemplate:
    """A CREATE MODEL with constants that each call gives, or with several results.

    What is computed are its instances: models of one result, in which all constants are numbers. An instance
    goes by a name that says which it is, such as `ewma[alpha = 0.1]` or `spectrum.p3`.
    """

    name: str
    parameters: tuple[str, ...]
    constants: tuple[str, ...]
    results: tuple[ModelResult, ...]
    nulls: str

    def __str__(self) -> str:
        columns = ", ".join(f"{name} DOUBLE" for name in self.parameters)
        constants = ", ".join(f"{name} DOUBLE" for name in self.constants)
        return f"{self.name}({columns}{f'; {constants}' if constants else ''})"

    def instance_names(self, values: Sequence[Fraction]) -> tuple[str, ...]:
        """The names of what a call with these constants computes, one for each result."""
        given = ", ".join(
            f"{name} = {plain_number(value)}" for name, value in zip(self.constants, values, strict=True)
        )
        whole = f"{self.name}[{given}]" if given else self.name
        return tuple(whole if not result.column else f"{whole}.{result.column}" for result in self.results)

    def instance(self, name: str) -> ModelDefinition | None:
        """The model of an instance's name."""
        found = _INSTANCE.fullmatch(name[len(self.name) :])
        if found is None:
            return None
        given = {
            key.strip().lower(): Fraction(value.strip())
            for key, _, value in (part.partition("=") for part in (found["given"] or "").split(",") if part)
        }
        column = (found["column"] or "").lower()
        for result in self.results:
            if result.column.lower() == column and tuple(given) == self.constants:
                return _instance(self, result, name, tuple(given.items()))
        return None


_INSTANCE = re.compile(r"(?:\[(?P<given>[^\]]*)\])?(?:\.(?P<column>.+))?")


@cache
def _instance(
    template: ModelTemplate, result: ModelResult, name: str, given: tuple[tuple[str, Fraction], ...]
) -> ModelDefinition:
    from slicemill.model.model import expression

    constants = {**dict(given), **dict(result.index)}
    model = expression(result.text, template.parameters, nulls=template.nulls, constants=constants)
    return ModelDefinition(name, model)


@cache
def predefined(name: str) -> ModelDefinition | None:
    """The model that everybody has by that name."""
    text = PREDEFINED.get(name.lower())
    if text is None:
        return None
    from slicemill.model.model import expression

    return ModelDefinition(name.lower(), expression(text))
