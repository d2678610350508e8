"""Scheduling of tasks: policies, statistics of runs, choice of the next task, and capacity planning.

A task is the set of operators that the driver schedules as one.

    batches --policy--> priorities --Chooser--> tasks to run          (batches, policies, priorities, chooser)
    costs + arrivals --simulation--> response times                   (capacity, rehearsal)
    runs --observe--> cost of a run, selectivity                      (statistics)

All modules are pure functions of their arguments. No module reads a clock or imports Spark.
"""
