"""Aggregates with OVER: columnar evaluation of built-ins (M31-M37).

Rows are sorted by partition, then by arrival. Each window is then a range of neighbouring rows, and
windows of later tuples begin and end later:

    partition   a a a a a | b b b | c c c c
    windows     [---)                            evaluated in order: each kernel adds rows at
                  [-----)                        one end and removes rows at the other
                          [---)

`calls` evaluates all calls of a query, `groups` the calls that share a window. `intervals` computes the
row ranges. The other modules contain the aggregates, one family each. Results are bit-identical to the
reference engine's, for any split of the input into runs. Sums, for example, are integers of arbitrary
precision (`wide`).
"""
