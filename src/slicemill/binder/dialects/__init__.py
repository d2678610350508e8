"""Syntax of other SQL systems, rewritten to plain ESL before binding."""
