"""Pages of the web console, computed from a mill and a metrics sample."""
