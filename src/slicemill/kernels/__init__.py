"""Kernels: loops over rows, run as Python or compiled with Numba.

    @kernel
    def running(values, out): ...

A new kernel runs as Python at once. Its Python and machine code versions perform the same operations in
the same order, so that results are bit-identical. A thread compiles the kernel with Numba when it has run
as Python for as long as compilation takes, or when a call has enough rows to take that long (`kernel`).
Compiled code is stored under a digest of everything that it depends on (`content`, `store`), so that a
machine compiles it once.
"""
