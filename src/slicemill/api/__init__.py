"""Python API: the engine (`Mill`), its queries and their results."""
