"""Which unit runs next: charts, partitions, policies and the loop that plays them in virtual time.

Pure logic, shared by the dispatcher and the simulator. The way through it:

    Path of Stages --chart--> Pieces --partition--> Segments         (charts, partition, forks: M2-M9)
    Paths --cut--> Units --make("mss")--> Policy                     (units, registry, one module per policy)
    Paths + arrivals --draw--> Workload --simulate--> finish times --measures--> latency, memory

The simulator's loop is `loop`, in compiled code where the policy is numbers per unit; beside it
`clustered_loop`, `calendar_loop`, `join_loop` and `aggregate_loop` play what needs a loop of its own.
`testbeds`, `shared_selects` and `drifting` make the workloads of the published experiments.

Times are in whatever unit the stages' times are in; nothing here reads a clock.
"""
