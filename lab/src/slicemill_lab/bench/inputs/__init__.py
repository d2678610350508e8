"""What benchmarks feed: rows, files and queries, always the same."""
