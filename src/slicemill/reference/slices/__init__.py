"""Window joins over sliced state, tuple at a time, exactly by the published rules, counting comparisons.

`chain` is the heart: slices (`time_slice`, `count_slice`) joined by queues, with `selection` in front and an
ordered `union` per query behind, any operator run at any moment; `changing` adds and removes queries and cuts
while it runs. `unshared` has the ways without slices to compare with. `multiway` shares joins of more than
two streams, `semi_ordered` and `symmetric_hash` take inputs that are in order each but not together.
`operator` makes any of the two-stream joins an operator of the reference engine.
"""
