"""The Spark host: sessions, streams, logs, units and results."""
