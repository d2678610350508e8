"""Classifiers with a budget of observed features (M49-M57)."""
