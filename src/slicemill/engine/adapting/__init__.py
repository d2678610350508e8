"""Adaptation to the load: rebalancing of cells, rescaling, and heavy keys."""
