"""Ad hoc queries: SQL over the current rows, executed in separate processes."""
