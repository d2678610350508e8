"""Scheduling of tasks: policies, run statistics, the chooser, and capacity planning.

    batches --policy--> priorities --Chooser--> tasks to run          (batches, policies, priorities, chooser)
    costs + arrivals --simulation--> response times                   (capacity, rehearsal)
    runs --observe--> cost of a run, selectivity                      (statistics)

All modules are pure functions of their arguments. They read no clock and do not import Spark.
"""
