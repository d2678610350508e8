"""Render typed expressions as ESL text or SQL."""
