"""EXPLAIN of query graphs as text, JSON and SVG."""
