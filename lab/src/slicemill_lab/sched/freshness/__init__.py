"""Freshness-aware scheduling (sched-E22 to sched-E28)."""
