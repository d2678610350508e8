"""Sources that Spark reads, through one Structured Streaming query."""
