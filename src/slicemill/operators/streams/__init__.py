"""Sources and sinks of the query graph."""
