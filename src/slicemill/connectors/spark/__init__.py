"""Sources that Spark reads, each through a Structured Streaming query."""
