"""A model as an aggregate, which any window can use."""

from __future__ import annotations

from slicemill.esl.aggregate import AggregateDefinition
from slicemill.esl.catalog import Catalog
from slicemill.esl.types import BOOLEAN, DOUBLE, TIMESTAMP, Column, Schema
from slicemill.model.model import Model


def aggregates_of(name: str, model: Model) -> tuple[AggregateDefinition, AggregateDefinition]:
    """Its base and its window version. A model that uses age takes one argument more: when the tuple was."""
    columns = [Column(parameter, DOUBLE) for parameter in model.parameters]
    if model.uses_age:
        columns.append(Column("at", TIMESTAMP))
    arguments = Schema(tuple(columns))
    returns = Schema((Column(name, BOOLEAN if model.is_condition else DOUBLE),))
    base, window = (
        AggregateDefinition(name, arguments, returns, window=version, algebraic=False, model=model)
        for version in (False, True)
    )
    return base, window


def with_model(name: str, model: Model, catalog: Catalog) -> Catalog:
    """The catalog, in which a model has that name."""
    catalog = catalog.copy()
    base, window = aggregates_of(name, model)
    catalog.base_aggregates[name.lower()] = base
    catalog.window_aggregates[name.lower()] = window
    return catalog
