"""Models with OVER of several queries that share cores (C14)."""
