"""The reference execution model: tuple at a time, one process, virtual or real clock.

It defines what a query means at each moment (spec M14-M26), is what the vectorised kernels are tested
against, and is the simulator behind the scheduling experiments.
"""
