"""Measuring systems over the same files: slicemill now and before, Spark and Flink, each in its own program.

    Workload: streams of files, queries in three languages, how many results they have
       │ job                                            files arrive in folders
       ▼                                                          ▼
    side.py slicemill | spark | flink  ──►  counts, and processor time of all its processes meanwhile

`workload` has what runs, `side` is the program, `systems` says how it is started, and `comparison` runs
workloads on systems in turns and makes claims of what was measured.
"""
