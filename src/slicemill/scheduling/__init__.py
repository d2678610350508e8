"""Scheduling of units: policies, their statistics, the chooser and capacity planning."""
