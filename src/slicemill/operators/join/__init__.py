"""Window joins of two streams as shared chains of state slices (S9-S24, S45-S50).

    windows     window ends of the queries, as tables of bits by age
    hashing     64-bit hashes of keys of any type
    conditions  selections of rows, and residual conditions on pairs
    entry       preparation of arriving rows: hash and mask
    block       rows of one side, grouped by key: the content of a slice
    state       state between runs
    side        state of one side: waiting rows, and slices that age
    unmatched   unmatched rows of outer, semi and anti joins
    measures    statistics of the join, and the slice cuts planned from them
    pairs       pairs of rows with their columns
    answers     results of each query
    shared      the join itself
    order       results of chained joins in the order of a single join
    heavy       rows of heavy keys, spread over all cells
    redistribute    state after a rescale
    probe, placing, retain    compiled loops
    loops       the signatures for which loops are compiled

Each new row probes the slices of the other side and the other new rows. The age of the stored row, in
time or in row numbers, determines which queries reach the pair (S49). The masks of both rows hold the
queries whose selections passed (S19). The conjunction of these bits is the result for all queries at
once.
"""
