"""Render typed expressions as ESL text for users, or as SQL for Spark and DuckDB."""
