"""Joins of streams over punctuation windows, which rows close by key."""
