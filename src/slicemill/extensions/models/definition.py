"""Catalog definitions of models: formulas over a window that are called like aggregates (C20)."""

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

# Texts of the models that need no declaration. Built-in aggregates of the same name take precedence.
PREDEFINED = {name: text for name, text in CATALOGUE.items() if name not in BUILTINS}


@dataclass(frozen=True)
class ModelDefinition(CalledDefinition):
    """Model declared by CREATE MODEL: a formula over a window, called like an aggregate.

    `letters` is the text of a model that is written with operator letters, such as Ac[+] · T[x^2]. `rules`
    are the names of the rules that rewrote this text.
    """

    name: str
    model: Model
    kind: ClassVar[str] = "MODEL"
    letters: str = ""
    rules: tuple[str, ...] = ()

    @property
    def arguments(self) -> Schema:
        """Return the arguments of a call of this model, as columns.

        A model that uses `age` has the tuple's timestamp as its last argument.
        """
        columns = [Column(parameter, DOUBLE) for parameter in self.model.parameters]
        if self.model.uses_age:
            columns.append(Column("at", TIMESTAMP))
        return Schema(tuple(columns))

    @property
    def versions(self) -> tuple[AggregateDefinition, AggregateDefinition]:
        """Return the model as two aggregate definitions: for unbounded streams, and for windows."""
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
        class_, cores = self.model.classification, len(self.model.cores)
        state = f"{class_.kind}, {format_count(cores, 'core statistic')}, state of {class_.state_text}"
        return f"{self.arguments} returns {self.model.text}; {state}"


@dataclass(frozen=True)
class ModelResult:
    """One result column of a model with several results, and the formula of the column.

    For results declared as `name[k = 0 TO 7]`, `index` has the name k and its value for this column.
    """

    column: str
    text: str
    index: tuple[tuple[str, Fraction], ...] = ()


@dataclass(frozen=True)
class ModelTemplate(CalledDefinition):
    """Model declared by CREATE MODEL with constants or with several results.

    Each call sets the constants. The engine computes one instance per result: a model with a single result
    and with numbers for all constants. The name of an instance includes the constants and the result, as in
    `ewma[alpha = 0.1]` or `spectrum.p3`.
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
        return f"{self} returns {format_count(len(self.results), 'column')}: {', '.join(results)}"

    def __str__(self) -> str:
        columns = ", ".join(f"{name} DOUBLE" for name in self.parameters)
        constants = ", ".join(f"{name} DOUBLE" for name in self.constants)
        return f"{self.name}({columns}{f'; {constants}' if constants else ''})"

    def instance_names(self, values: Sequence[Fraction]) -> tuple[str, ...]:
        """Return the name of each result's model with these constants, such as `ewma[alpha = 0.1]`."""
        settings = ", ".join(
            f"{name} = {plain_number(value)}" for name, value in zip(self.constants, values, strict=True)
        )
        whole = f"{self.name}[{settings}]" if settings else self.name
        return tuple(whole if not result.column else f"{whole}.{result.column}" for result in self.results)

    def instance(self, name: str) -> ModelDefinition | None:
        """Return the model that a name such as `ewma[alpha = 0.1]` denotes, or None."""
        match = _INSTANCE.fullmatch(name[len(self.name) :])
        if match is None:
            return None
        parts = (part.partition("=") for part in (match["settings"] or "").split(",") if part)
        settings = {key.strip().lower(): Fraction(value.strip()) for key, _, value in parts}
        column = (match["column"] or "").lower()
        for result in self.results:
            if result.column.lower() == column and tuple(settings) == self.constants:
                return _instance(self, result, name, tuple(settings.items()))
        return None


_INSTANCE = re.compile(r"(?:\[(?P<settings>[^\]]*)\])?(?:\.(?P<column>.+))?")


@cache
def _instance(
    template: ModelTemplate, result: ModelResult, name: str, settings: tuple[tuple[str, Fraction], ...]
) -> ModelDefinition:
    from slicemill.extensions.models.model import expression

    constants = {**dict(settings), **dict(result.index)}
    model = expression(result.text, template.parameters, nulls=template.nulls, constants=constants)
    return ModelDefinition(name, model)


@cache
def predefined(name: str) -> ModelDefinition | None:
    """Return the predefined model with this name, or None if there is none."""
    text = PREDEFINED.get(name.lower())
    if text is None:
        return None
    from slicemill.extensions.models.model import expression

    return ModelDefinition(name.lower(), expression(text))
