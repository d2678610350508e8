"""Which streams to look at, one module per policy; `registry` knows them by name."""
