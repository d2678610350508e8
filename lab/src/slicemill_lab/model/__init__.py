"""Experiments on models: incremental against blocking graphs, cores that are shared, exactness of sums."""
