"""Rules of the optimizer. Each module has one function of the same name, which rewrites the query graph."""
