"""Workers: long-running Python tasks of Spark that answer messages, or ordinary Spark jobs."""
