"""Adaptation to the load: rebalancing of cells, rescaling of units, and heavy keys."""
