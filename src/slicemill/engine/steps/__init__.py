"""Operators set at a time, one module per kind; `registry` says which step a node gets."""

from slicemill.engine.steps.step import END, Part, SharedStep, StatefulStep, Step

__all__ = ["END", "Part", "SharedStep", "StatefulStep", "Step"]
