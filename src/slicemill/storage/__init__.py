"""What lasts: segments, logs, the journal, checkpoints; all of it files in a home."""
