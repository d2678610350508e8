"""Window joins of two or more streams.

Queries share the stored rows as chains of state slices (S9-S24, S45-S50). A new row probes the stored rows of
the other inputs and the other new rows. The age of a stored row, in time or in row numbers, determines the
queries whose windows contain it (S49). Each row has a mask with one bit per query. The bit is set if the row
passes the selection of the query (S19). The AND of the masks of all joined rows and of the masks of their
ages gives the queries for which the rows are a result.

    spec        what a join computes
    step        execution: arriving rows, released rows, storing, and the statistics of a micro-batch
    prepare     query masks and key hashes of arriving rows (`hashing`: 64-bit hashes of keys of any type)
    orders      probing orders: the order in which a new row probes the inputs
    search      search for the results of new rows
    partials    partial results, residual conditions, and indexes by further keys
    probe       compiled loops that find pairs and expire rows
    emit        results of each query, in order
    unmatched   unmatched rows of outer, semi and anti joins
    block       rows of one input, grouped by key: the content of a slice; window ends as bit masks by age
    state       state of a join between micro-batches: waiting rows and slices; release of waiting rows
    statistics  statistics of a join, from which slice borders and probing orders are planned
    rescale     state after a rescale
    heavy_keys  rows of heavy keys, spread over all subtasks
    form        choice by cost between a multi-way join and a tree of two-way joins
    rows        joins row by row: the reference, and joins of several streams over row counts
    slices      planning of slice borders and of reused state

A join of two streams finds its results in output order, and therefore stores no sequence numbers. Only a join
of two streams can be an outer join, count rows, or spread heavy keys.
"""
