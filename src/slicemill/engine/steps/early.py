"""Early entries: what makes them of rows (`plan.early_panes`, `kernels.panes.early`)."""

from __future__ import annotations

from slicemill.esl.types import Schema
from slicemill.kernels.panes.early import Reduction
from slicemill.kernels.panes.figures import figure_of
from slicemill.kernels.panes.partials import Partial
from slicemill.kernels.panes.selection import Input
from slicemill.plan.early_panes import Recipe


def reduction_of(recipe: Recipe, schema: Schema) -> Reduction:
    """What makes early entries by a recipe, of rows with a stream's columns."""
    uses: list[list[Partial]] = [[] for _ in recipe.conditions]
    for place, call in recipe.calls:
        figure = figure_of(call)
        assert figure is not None, "the plan says that panes can answer it"
        uses[place] += figure.partials
    return Reduction(Input(schema, recipe.keys), recipe.conditions, uses, recipe.edges)
