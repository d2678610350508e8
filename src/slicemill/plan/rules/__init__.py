"""Rules of the optimizer: each module has one rewrite of the query graph, which has the module's name."""
