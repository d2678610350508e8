"""Loops over rows, as Python first and as machine code once that is worth its price.

    @kernel
    def running(values, out): ...

A kernel answers at once: it runs as Python, the same operations in the same order, so that its results are
the same to the last bit. When it has taken as long as compiling would, or has more rows before it than that,
a thread compiles it with Numba, and later calls run machine code (`kernel`). What is compiled is stored under
the digest of all that it depends on (`content`, `store`), so that a machine compiles it once.
"""
