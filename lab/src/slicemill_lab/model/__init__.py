"""Experiments on models: incremental and blocking graphs, shared cores, exactness of sums."""
