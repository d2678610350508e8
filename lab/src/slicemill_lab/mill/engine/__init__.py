"""Execution experiments on the product's engine (mill-spark-E5 to mill-spark-E19)."""
