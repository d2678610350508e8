"""The service over HTTP: REST, live results as server-sent events."""
