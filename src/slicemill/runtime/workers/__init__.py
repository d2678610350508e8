"""Workers: long-running Python tasks of Spark, or ordinary Spark jobs."""
