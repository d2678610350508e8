"""Load shedding: choice of the tuples to drop at load or memory limits.

The package has no input or output. The engine and the oracle use it.
"""
