"""Scheduling of units: policies, their statistics, the chooser and capacity planning.

    Batches --policy--> priorities --Chooser--> units to run          (batches, policies, priorities, chooser)
    costs + arrivals --rehearsal--> response times                    (capacity, rehearsal)
    runs --observe--> batch cost, selectivity                         (statistics)

Pure logic: no module reads a clock or imports Spark.
"""
