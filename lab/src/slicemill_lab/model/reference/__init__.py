"""Graphs of models that are executed instance by instance (C10-C15)."""
