"""Window joins of streams.

Queries share the stored rows as chains of state slices (S9-S24, S45-S50). A new row probes the stored rows of
the other input and the other new rows. The age of the stored row, in time or in row numbers, determines the
queries whose windows contain the pair (S49). Each row has a mask with one bit per query. The bit is set if
the row passes the selection of the query (S19). The AND of both masks and the mask of the age gives the
queries for which the pair is a result.

    spec        what a join computes
    step        execution of a two-way join
    hashing     64-bit hashes of keys of any type
    conditions  selections of rows, residual conditions on pairs, preparation of arriving rows
    block       rows of one input, grouped by key: the content of a slice; window ends as bit masks by age
    state       state of a join between runs: waiting rows and slices
    statistics  statistics of a join, from which the slice cuts are planned
    probe       compiled loops that find pairs and expire rows
    pairs       pairs of rows with their columns
    answers     results of each query; unmatched rows of outer, semi and anti joins
    heavy_keys  rows of heavy keys, spread over all subtasks
    rescale     state after a rescale
    rows        joins row by row: the reference, and joins over row counts
    multiway*   join of three or more streams in one operator
    slices      planning of slice cuts and of reused state
"""
