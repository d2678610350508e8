"""Models, bound and typed: formulas that are called like aggregates (C20)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.extended import CalledDefinition
from slicemill.errors import format_count
from slicemill.extensions.models.formulas import CATALOGUE
from slicemill.extensions.models.terms import plain_number
from slicemill.types import BOOLEAN, DOUBLE, TIMESTAMP, Column, Schema

if TYPE_CHECKING:
    from slicemill.extensions.models.model import Model

# Models that need no declaration. A built-in aggregate of the same name takes precedence.
PREDEFINED = {name: text for name, text in CATALOGUE.items() if name not in BUILTINS}


@dataclass(frozen=True)
class ModelDefinition(CalledDefinition):
    """Model declared by CREATE MODEL.

    `letters` is its text in the paper's letters, if used. `rules` are the rules that rewrote the letters.
    """

    name: str
    model: Model
    kind: ClassVar[str] = "MODEL"
    letters: str = ""
    rules: tuple[str, ...] = ()

    @property
    def arguments(self) -> Schema:
        """Return the model's parameters as columns.

        A model that uses age has the tuple's timestamp as its last argument.
        """
        columns = [Column(parameter, DOUBLE) for parameter in self.model.parameters]
        if self.model.uses_age:
            columns.append(Column("at", TIMESTAMP))
        return Schema(tuple(columns))

    @property
    def versions(self) -> tuple[AggregateDefinition, AggregateDefinition]:
        """Return the base and window version as an aggregate."""
        returns = Schema((Column(self.name, BOOLEAN if self.model.is_condition else DOUBLE),))
        base, window = (
            AggregateDefinition(
                self.name, self.arguments, returns, window=version, algebraic=False, formulas=(self.model,)
            )
            for version in (False, True)
        )
        return base, window

    @property
    def summary(self) -> str:
        found, cores = self.model.classification, len(self.model.cores)
        kept = f"{found.kind}, {format_count(cores, 'core')}, keeps {found.state_text}"
        return f"{self.arguments} gives {self.model.text}; {kept}"


@dataclass(frozen=True)
class ModelResult:
    """One result column of a model.

    `index` has the values of index names for this column, as in `name[k = 0 TO 7]`.
    """

    column: str
    text: str
    index: tuple[tuple[str, Fraction], ...] = ()


@dataclass(frozen=True)
class ModelTemplate(CalledDefinition):
    """A CREATE MODEL with constants or with several results.

    Each call sets the constants. The engine computes instances: models of a single result, with numbers for
    all constants. The name of an instance includes the constants and the result, as in `ewma[alpha = 0.1]` or
    `spectrum.p3`.
    """

    name: str
    parameters: tuple[str, ...]
    constants: tuple[str, ...]
    results: tuple[ModelResult, ...]
    nulls: str
    kind: ClassVar[str] = "MODEL"
    bind_call: ClassVar[str] = "slicemill.extensions.models.call_binder:bind_call"

    @property
    def summary(self) -> str:
        results = dict.fromkeys(result.text for result in self.results)
        return f"{self} gives {format_count(len(self.results), 'column')}: {', '.join(results)}"

    def __str__(self) -> str:
        columns = ", ".join(f"{name} DOUBLE" for name in self.parameters)
        constants = ", ".join(f"{name} DOUBLE" for name in self.constants)
        return f"{self.name}({columns}{f'; {constants}' if constants else ''})"

    def instance_names(self, values: Sequence[Fraction]) -> tuple[str, ...]:
        """Return the instance names of a call with these constants.

        There is one instance for each result.
        """
        given = ", ".join(
            f"{name} = {plain_number(value)}" for name, value in zip(self.constants, values, strict=True)
        )
        whole = f"{self.name}[{given}]" if given else self.name
        return tuple(whole if not result.column else f"{whole}.{result.column}" for result in self.results)

    def instance(self, name: str) -> ModelDefinition | None:
        """Return the model of an instance by its name, or None."""
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
    from slicemill.extensions.models.model import expression

    constants = {**dict(given), **dict(result.index)}
    model = expression(result.text, template.parameters, nulls=template.nulls, constants=constants)
    return ModelDefinition(name, model)


@cache
def predefined(name: str) -> ModelDefinition | None:
    """Return the predefined model of that name, or None."""
    text = PREDEFINED.get(name.lower())
    if text is None:
        return None
    from slicemill.extensions.models.model import expression

    return ModelDefinition(name.lower(), expression(text))
