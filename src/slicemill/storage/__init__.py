"""Durable storage: segments, logs, the journal and checkpoints, as files in a home."""
