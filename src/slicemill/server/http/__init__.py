"""HTTP interface of the server: REST, and live results as server-sent events."""
