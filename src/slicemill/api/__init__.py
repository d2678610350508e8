"""Python API: the mill, its queries and their results."""
