"""A multi-way join on many machines: the ring and its rivals in virtual time (slice-E11 to slice-E20)."""
