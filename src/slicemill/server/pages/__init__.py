"""Pages of the web console, computed from the running engine and a sample of metrics."""
