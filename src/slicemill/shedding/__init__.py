"""Load shedding: choice of the tuples to drop at load or memory limits.

The package does no input or output. The engine and the reference engine (oracle) use it.
"""
