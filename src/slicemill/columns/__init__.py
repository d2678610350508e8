"""Columns and tables: schemas, keys, order, ranges and changelogs."""
