"""A model from Python as an aggregate, which any window can use."""

from __future__ import annotations

from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.model import ModelDefinition
from slicemill.model.model import Model


def with_model(name: str, model: Model, catalog: Catalog) -> Catalog:
    """The catalog, in which a model has that name."""
    catalog = catalog.copy()
    catalog.add(ModelDefinition(name, model))
    return catalog
