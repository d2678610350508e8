"""Load shedding: which tuples to drop under load or memory limits."""
