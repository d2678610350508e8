"""Catalog: bound definitions of streams, tables, queries, functions and aggregates."""
