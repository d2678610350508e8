"""The model language: mathematics over windows (C1-C24).

>>> from slicemill.model import expression
>>> model = expression("(n*sum(x*y) - sum(x)*sum(y)) / (n*sum(x^2) - sum(x)^2)")
>>> print(model.classification.kind, len(model.cores))
INCREMENTAL 5
"""

from slicemill.model.classify import Classification, Kind, Way
from slicemill.model.core import Core
from slicemill.model.model import Model, expression, shared_cores
from slicemill.model.naive import Nulls
from slicemill.model.terms import ModelError

__all__ = [
    "Classification",
    "Core",
    "Kind",
    "Model",
    "ModelError",
    "Nulls",
    "Way",
    "expression",
    "shared_cores",
]
