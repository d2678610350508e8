"""Models with OVER of several queries, which share their cores (C14)."""
