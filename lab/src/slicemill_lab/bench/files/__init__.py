"""Comparison of systems over the same files: slicemill now and before, Spark and Flink, each in a process.

    Workload: streams of files, queries in three languages, expected number of results
       │ job                                            files arrive in folders
       ▼                                                          ▼
    side.py slicemill | spark | flink  ──►  counts, and the CPU time of all its processes

`workload` defines what runs, and `side` is the program of a system. `systems` defines how it is started.
`comparison` runs workloads on systems in turns and derives claims from the measurements.
"""
