"""Changes of queries, streams and tables while the engine runs, for example PAUSE and REFRESH."""
