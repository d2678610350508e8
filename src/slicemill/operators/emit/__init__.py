"""EMIT EVERY and EMIT FINAL: net changes of a changelog."""
