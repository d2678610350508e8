"""Load shedding: choice of the tuples (rows) to drop when a limit of lag or memory is reached.

The modules do no input or output. The engine and the reference engine (oracle) use them.
"""
