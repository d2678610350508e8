"""Memories that drop tuples, compiled: what `slicemill.shedding` chooses, for whole tables at a time."""
