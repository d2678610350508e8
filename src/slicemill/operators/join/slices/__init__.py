"""Planning of window joins that share sliced state (S15-S23, S46-S49).

All modules are pure functions. `members` describes the queries, `spans` the age ranges of a stream and the
queries that need each range, `workload` and `statistics` the arriving rows. `chain_cost` and `baselines`
compute state memory and comparisons, `optimise` chooses the cuts, `chain` builds the planned chain, and
`shared` builds it for a join of the plan. For slices that are files, `set_wise` chooses the cuts. `changes`
lists the steps from one set of cuts to another; `coverage` finds stored rows that a new query can use.
`savings` and `join_tree` are the published closed forms. `ring_length` chooses the length of a ring of
slices, `ring_sharing` the queries that share a ring.
"""
