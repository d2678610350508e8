"""Planning of window joins that share one sliced state between queries (S15-S23, S46-S49): pure functions.

`members` says what is shared, `spans` how the ages of a stream are cut and who needs each piece, `workload`
and `statistics` what arrives. From these `chain_cost` and `baselines` tell state memory and comparisons,
`optimise` chooses the cuts, and `chain` puts it all into one planned chain; `shared` does so for a join of
the plan. Where slices are data, `set_wise` chooses the cuts. `changes` leads from one set of cuts to another,
`coverage` says what a query that comes later finds. `savings` and `join_tree` are the published closed forms;
`ring_length` is how long a ring of slices should be, `ring_sharing` which queries share one.
"""
