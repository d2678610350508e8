"""Query graphs and models for people and programs: as text, JSON and SVG drawings."""
