"""Life cycle of queries, streams and tables: changes between two runs."""
