"""Window joins of three or more streams (S25, S45-S50).

Each stream has one state, which all queries share. The modules are:

    spec        specification and registration
    keys        equal expressions, and the keys by which a state is looked up
    orders      the order in which rows of each stream probe the other states
    lines       when rows may probe: groups of queries that wait for the same watermarks
    entry       preparation of arriving rows: hashes and mask
    indexes     indexes of blocks by any of their keys
    partials    partial results, level by level, and their columns
    residuals   residual conditions on partial results
    sorting     compiled loops that sort results
    results     results of each query
    measures    statistics from which orders are chosen
    kernel      the join itself
    state       state between runs
    redistribute    state after a rescale
    form        choice by cost between this form and a tree of two-way joins

A new row of a stream probes the states of the other streams, one after the other. No intermediate results are
stored. Each partial result has a mask of the queries whose result it may become. Masks of rows, ages
in windows and conditions clear bits of this mask, and a partial result without bits is dropped at once (S48).
Queries share probes for as long as their probing orders agree.
"""
