"""Which unit runs next, and how long results will take: policies, their chooser, and capacity planning.

    Batches --policy--> priorities --Chooser--> units to run          (batches, policies, chooser)
    Costs + Polls --rehearse--> Outcome                               (capacity, traffic, rehearsal)
    runs --observe--> BatchCost, Selectivity; results --> figures     (adaptive, metrics, quantiles)

Pure logic: nothing here reads a clock or imports Spark.
"""
