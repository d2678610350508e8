"""Window joins of two streams as a shared chain of state slices (S9-S24, S45-S50), set at a time.

    windows     which queries reach how far back: tables of bits by age
    hashing     keys of any type as 64-bit numbers
    conditions  selections of tuples, and what is tested on pairs
    entry       how rows come in: with hash and mask
    block       rows of one side, grouped by key, ready to be probed: what a slice holds
    state       what a join keeps between runs
    side        what one side of a join keeps: rows that wait, and slices that age
    measures    what the join has seen, and where that says its slices should be cut
    pairs       pairs with their columns
    answers     what each query gets of them
    shared      the join itself
    order       results of joins behind each other, in the order of one
    probe, placing, retain    the compiled loops
    loops       what types they are compiled for

Every new tuple probes the other side's slices and the other new tuples. Its age, in time or in rows, says
which queries may get a pair (S49), the masks of both tuples say which want it (S19), and their conjunction is
the answer for all queries at once.
"""
