"""The workloads of the published scheduling experiments, and the arrivals that they are made of."""
