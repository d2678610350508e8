"""What slicemill is measured against inside one session: Spark, plain Numba, slicemill as it was."""
