"""Load shedding: drop boxes pass only a share of rows (S54)."""
