"""Planning of window joins that share sliced state (S15-S23, S46-S49).

All modules are pure functions. `workload` describes the queries, their age ranges and the arriving rows.
`cuts` computes state memory and comparisons, and chooses the ages at which state is cut. `coverage` finds
stored rows that a new query can use.
"""
