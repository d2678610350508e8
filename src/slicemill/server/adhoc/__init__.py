"""Ad hoc queries: SQL over the current rows, in processes of their own."""
