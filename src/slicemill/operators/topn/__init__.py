"""Top-n rows of each partition: ROW_NUMBER, RANK or DENSE_RANK up to a limit."""
