"""Conversion of model classes to and from their checkpoint format."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from slicemill.codec.registry import register, stored_as
from slicemill.extensions.models.calls import ModelCall
from slicemill.extensions.models.cost import CoreCosts
from slicemill.extensions.models.model import Model, expression

stored_as("model.asked", version=1)(ModelCall)
stored_as("model.core_costs", version=1)(CoreCosts)


def _plain_model(model: Model) -> dict[str, Any]:
    """Return the stored fields of a model: text, parameters and constants. Others are computed on load."""
    plain = {"text": model.text, "parameters": model.parameters, "nulls": model.nulls.value}
    constants = {name: str(value) for name, value in model.constants}
    return {**plain, "constants": constants} if constants else plain


def _model(plain: dict[str, Any]) -> Model:
    constants = {name: Fraction(value) for name, value in plain.get("constants", {}).items()}
    return expression(plain["text"], plain["parameters"], nulls=plain["nulls"], constants=constants)


register("model", 1, Model, _plain_model, _model)
