"""Whatever Spark reads, through one Structured Streaming query."""
