"""Window joins over sliced state, with counted comparisons, by the published rules.

The central module is `chain`: slices (`time_slice`, `count_slice`) connected by queues, with `selection`
before and an ordered `union` per query after them. Slices may run in any order. `changing` adds and removes
queries and cuts at run time. `unshared` has the alternatives without slices. `multiway` shares joins of more
than two streams. `semi_ordered` and `symmetric_hash` join inputs that are ordered individually but not
mutually. `operator` makes two-stream joins operators of the reference engine.
"""
