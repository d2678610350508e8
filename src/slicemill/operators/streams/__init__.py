"""Where tuples enter the query graph and where they leave it."""
