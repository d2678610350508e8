"""Built-in aggregates with OVER, whole tables at a time (M31-M37).

Rows are sorted by partition, then by arrival. Every window, whatever its strategy, is then a
stretch of neighbouring rows, and the windows of later tuples begin and end later:

    partition   a a a a a | b b b | c c c c
    windows     [---)                            answered one after the other: each kernel
                  [-----)                        takes rows in and out at the two ends
                          [---)

`calls` evaluates the calls of a query together, `groups` those with one window; `intervals` finds the
stretches; the other modules have the aggregates, one family each. Results are the reference's to the last
bit, wherever the input is cut into runs: sums, for one, are whole numbers of many digits (`wide`).
"""
