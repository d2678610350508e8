"""Workloads of the published scheduling experiments, and generators of arrival times."""
