"""slicemill: many continuous queries over streams, planned together and run on Spark."""

from __future__ import annotations

__version__ = "0.1.0"
