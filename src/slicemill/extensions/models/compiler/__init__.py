"""Generated code of models, within the loops of other aggregates."""
