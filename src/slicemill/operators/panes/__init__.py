"""Pane aggregates shared by the sliding windows of many queries (M35).

Time is cut into panes at each point where a window of any query begins or ends (`edges`). Per pane, key
and pattern (the set of queries whose conditions a tuple satisfies) there is one *entry* (`entries`). An
entry stores the partial aggregates that the queries' aggregates are computed from (`partials`, `sums`).

A `view` orders the entries that one query reads by key and time. Each window is then a span of
neighbouring entries (`spans`). Its result is computed from both ends of the span (`figures`), in a time
that does not depend on the number of tuples.
"""
