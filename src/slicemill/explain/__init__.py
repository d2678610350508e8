"""EXPLAIN of query graphs as text, JSON, SVG, Mermaid and DOT."""
