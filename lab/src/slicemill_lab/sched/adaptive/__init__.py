"""Experiments on adaptive statistics (sched-E19 to sched-E21)."""
