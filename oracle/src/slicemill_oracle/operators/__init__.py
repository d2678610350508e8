"""Operators of the oracle: tuple-at-a-time versions."""
