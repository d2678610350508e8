"""Planning of window joins that share state slices: stored rows between two ages (S15-S23, S46-S49).

All modules are pure functions.

    workload  queries, age ranges and arrival rates
    cuts      slice borders: the ages at which one state slice ends and the next begins; costs of a plan
    coverage  stored rows that a new query can use
"""
