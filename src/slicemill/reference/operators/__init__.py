"""The operators of the reference engine, tuple at a time: the twins of those in `slicemill.operators`."""
