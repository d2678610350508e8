"""Measurement tools of benchmarks: CPU time and memory of process trees, waiting, and parts of benchmarks."""
