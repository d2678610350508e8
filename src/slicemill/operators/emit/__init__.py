"""EMIT EVERY and EMIT FINAL: net changes instead of all of them."""
