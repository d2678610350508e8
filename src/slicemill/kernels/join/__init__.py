"""Window joins of two streams as a shared chain of state slices (S9-S24, S45-S50), set at a time.

    windows   which queries reach how far back: tables of bits by age
    hashing   keys of any type as 64-bit numbers
    block     rows of one side, grouped by key, ready to be probed: what a slice holds
    probe     the compiled loops: where partners lie, which pairs some query wants, in which order
    pairs     pairs with their columns, tested and handed to the queries
    side      what one side of a join keeps: rows that wait, and slices that age
    shared    the join itself

Every new tuple probes the other side's slices and the other new tuples. Its age, in time or in rows, says
which queries may get a pair (S49), the masks of both tuples say which want it (S19), and their conjunction is
the answer for all queries at once.
"""
