"""CREATE MODEL: aggregate functions that are written as formulas over a window (C1-C24).

A core statistic (`Core`) is a sum, count or extreme over the window from which the formula's result is
computed. Each core statistic is updated when rows arrive and expire, or recomputed from the window.

>>> from slicemill.extensions.models.model import expression
>>> model = expression("(n*sum(x*y) - sum(x)*sum(y)) / (n*sum(x^2) - sum(x)^2)")
>>> print(model.classification.kind, len(model.cores))
INCREMENTAL 5
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slicemill.extensions.models.cores import Classification, Core, CoreKind, CoreMethod
    from slicemill.extensions.models.model import Model, Nulls, expression, shared_cores
    from slicemill.extensions.models.terms import ModelError

__all__ = [
    "Classification",
    "Core",
    "CoreKind",
    "CoreMethod",
    "Model",
    "ModelError",
    "Nulls",
    "expression",
    "shared_cores",
]

_LAZY = {
    "Classification": "cores",
    "Core": "cores",
    "CoreKind": "cores",
    "Model": "model",
    "ModelError": "terms",
    "Nulls": "model",
    "CoreMethod": "cores",
    "expression": "model",
    "shared_cores": "model",
}


def __getattr__(name: str) -> object:
    # Names are imported on access, because most scripts declare no models.
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
