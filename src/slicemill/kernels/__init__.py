"""Kernels: loops over rows, run as Python or compiled with Numba.

    @kernel
    def running(values, out): ...

A new kernel runs as Python first. The Python version and the machine code perform the same operations in
the same order, so their results are bit-identical. A background thread compiles a kernel with Numba once
its Python runs have taken about as long as compilation takes, or when a single call would (`kernel`).
Compiled code is stored on disk under a digest of the function and of everything that it depends on
(`store`), so each machine compiles a kernel only once.
"""
