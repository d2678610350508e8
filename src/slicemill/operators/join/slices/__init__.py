"""Planning of window joins that share state slices (S15-S23, S46-S49).

All modules are pure functions.

    workload  queries, age ranges and arrival rates
    cuts      state memory and comparisons of a plan, and the ages at which state is cut
    coverage  stored rows that a new query can use
"""
