"""Load shedding: which tuples to drop under load or memory limits.

Pure logic, used by the engine and by the oracle.
"""
