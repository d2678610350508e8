"""Code generation for models, inside the loops of other aggregates."""
