"""The planner: bound statements to a query graph, and rewrites of that graph."""
