"""Experiments on scheduling: objectives by policy and load, in virtual time on one processor."""
