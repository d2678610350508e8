"""Ad hoc queries: SQL over the rows that are stored now."""
