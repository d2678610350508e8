"""Durable storage of a home: segments, logs, the journal and checkpoints."""
