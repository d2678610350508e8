"""Simulator of scheduling policies: tasks run tuple by tuple in virtual time.

    Paths + arrivals --draw--> Workload --simulate(policy)--> Run --measures--> latency, slowdown, memory

The main loop is in `loop`, compiled for policies that consist of numbers per task. `clustered_loop`,
`calendar_loop`, `join_loop` and `aggregate_loop` implement special cases. The simulator reads no clock.
"""
