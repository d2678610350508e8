"""Selections and projections, which are stateless."""
