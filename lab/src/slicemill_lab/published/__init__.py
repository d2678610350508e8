"""Figures as they were published, how ours are held against them, and what became of them here."""
