"""Measuring a running system from outside: one process sends stamped tuples, another one sees the results.

    sender ──tcp──► slicemill | Spark | Flink ──► subscriber: now − stamp, row by row

`queries` has what runs; `sender` and `subscriber` are programs of their own, `spark_side` and `flink_side`
the rivals' programs; `systems` says how each is started, and `session` runs one of them for a while.
"""
