"""Drop boxes: under load only a share of the tuples goes on (S54)."""
