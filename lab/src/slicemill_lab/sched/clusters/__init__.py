"""Balance slowdown that pays for its decisions (sched-E16, sched-E17)."""
