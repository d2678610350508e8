"""Window joins of three and more streams: one state per stream, nothing between them stored (S25, S45-S50).

    spec        what is joined, and its registration
    keys        which expressions are equal, and how a state is looked up by them
    orders      in which order the rows of each stream probe the others' states
    lines       whose turn it is: for whom a row can probe, and for whom it is late
    entry       how rows come in: with hashes and mask
    indexes     blocks of rows, looked up by any of their keys
    partials    partial results, level by level, and their columns
    sorting     the compiled loops that put results in order
    results     what each query gets of what was found
    measures    what was seen, from which orders are chosen
    kernel      the join itself
    state       what it keeps between runs
    form        this form or a tree of joins of two: a choice by cost

A new row of a stream probes the states of the others, one after the other. What it finds is a partial result
with a mask of the queries that want it still: masks of rows, ages in windows and conditions narrow it, and
what nobody wants is dropped at once (S48). Queries go the same way together for as long as they agree on it.
"""
