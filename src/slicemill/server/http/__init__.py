"""HTTP interface of the service: REST, and live results as server-sent events."""
