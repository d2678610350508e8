"""Durable storage of a home directory: segments, logs, the journal and checkpoints."""
