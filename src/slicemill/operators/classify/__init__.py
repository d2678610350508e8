"""Classifiers that look at few of their features (M49-M57)."""
