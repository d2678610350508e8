"""Capacity planning: what a load would do to the users of a script's queries, before it comes."""
