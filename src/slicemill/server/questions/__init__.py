"""Questions: SQL over what is there now, which rows it needs, and mistakes in it."""
