"""Statistics that follow the data (sched-E19 to sched-E21)."""
