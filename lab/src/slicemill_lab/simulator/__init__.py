"""The simulator: units played tuple by tuple in virtual time.

    Paths + arrivals --draw--> Workload --simulate(policy)--> Run --measures--> latency, slowdown, memory

The loop is `loop`, in compiled code where the policy is numbers per unit; beside it `clustered_loop`,
`calendar_loop`, `join_loop` and `aggregate_loop` play what needs a loop of its own. Nothing reads a clock.
"""
