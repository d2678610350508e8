"""Planner: translate bound statements into one query graph, then rewrite the graph to share operators."""
