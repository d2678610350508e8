"""Bind changing results (changelogs), and statements that change tables."""
