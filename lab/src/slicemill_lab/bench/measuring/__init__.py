"""How benchmarks measure: processor time and memory of process trees, waiting, parts of a benchmark."""
