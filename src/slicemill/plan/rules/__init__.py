"""Rewrites of the query graph, one per module: a function of the same name from graph to graph."""
