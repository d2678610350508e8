"""One folder per operator: what it computes (spec), how it runs (step, kernels), and its registration."""
