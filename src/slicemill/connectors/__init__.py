"""Sources and sinks, a folder each."""
