"""Policies that choose between tuples at the heads of queues, one module each."""
