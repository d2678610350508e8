"""Experiments on balance slowdown with charged decisions (sched-E16, sched-E17)."""
