"""Interactive shell `slicemill sql`: a client of a server that imports neither Spark nor the engine."""
