"""Joins of changelogs."""
