"""Server: one mill shared by many users over HTTP and the PostgreSQL protocol."""
