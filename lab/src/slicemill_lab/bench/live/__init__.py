"""Latency measurement from outside: one process sends stamped tuples, another one observes results.

    sender ──tcp──► slicemill | Spark | Flink ──► subscriber: now − stamp, row by row

`queries` defines the queries. `sender` and `subscriber` are separate programs, `spark_side` and `flink_side`
the programs of the rivals. `systems` defines how each system is started, and `session` runs one of them.
"""
