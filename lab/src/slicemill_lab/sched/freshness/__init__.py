"""Experiments on freshness-aware scheduling (sched-E22 to sched-E28)."""
