"""Benchmarks, one per module: `slicemill bench NAME`.

Machines are shared and noisy, so a benchmark reports work per second of processor time and ratios within one
run, never wall times alone.
"""
