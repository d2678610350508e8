"""Workers: Python tasks of Spark that stay and answer messages, and the same messages as ordinary jobs."""
