"""EXPLAIN of query graphs and models as text, JSON and SVG."""
