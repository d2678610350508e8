"""Which unit runs next: charts, partitions, policies and the loop that plays them in virtual time.

Pure logic, shared by the dispatcher and the simulator. The way through it:

    Path of Stages --chart--> Pieces --partition--> Segments         (charts, partition, forks: M2-M9)
    Paths --cut--> Units --make("mss")--> Policy                     (units, registry, one module per policy)
    Paths + arrivals --draw--> Workload --simulate--> finish times --measures--> latency, memory

Times are in whatever unit the stages' times are in; nothing here reads a clock.
"""
