"""Scheduling policies for the simulator, one module each."""
