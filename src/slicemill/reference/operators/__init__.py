"""Operators of the reference engine: tuple-at-a-time versions of `slicemill.operators`."""
