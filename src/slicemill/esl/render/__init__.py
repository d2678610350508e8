"""Typed expressions back to text: ESL for people, and SQL that Spark or DuckDB runs."""
