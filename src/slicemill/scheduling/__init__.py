"""Scheduling of units, and estimation of response times: policies, chooser, capacity planning.

    Batches --policy--> priorities --Chooser--> units to run          (batches, policies, chooser)
    Costs + Polls --rehearse--> Outcome                               (capacity, traffic, rehearsal)
    runs --observe--> BatchCost, Selectivity; results --> figures     (adaptive, metrics, quantiles)

Pure logic: nothing here reads a clock or imports Spark.
"""
