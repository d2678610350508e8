"""Compiled memories with load shedding, equivalent to `slicemill.shedding`."""
