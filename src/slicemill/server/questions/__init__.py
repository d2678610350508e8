"""Ad hoc queries: SQL over the current rows, projection and predicate push-down, and errors."""
