"""Sources that are read through Spark, each by a Structured Streaming query."""
