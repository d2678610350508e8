"""Benchmarks, one per module: `slicemill bench NAME`.

Machines are shared and noisy. So a benchmark reports work per second of CPU time and ratios within one run,
never wall times alone.
"""
