"""Rewrite the syntax of other SQL systems to plain ESL before binding."""
