"""Register a model built in Python as an aggregate."""

from __future__ import annotations

from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.model import ModelDefinition
from slicemill.model.model import Model


def with_model(name: str, model: Model, catalog: Catalog) -> Catalog:
    """Return the catalog with the model registered under a name."""
    catalog = catalog.copy()
    catalog.add(ModelDefinition(name, model))
    return catalog
