"""Panes: sliding windows of many queries, answered from one set of small partial results (M35).

Time is cut wherever a window of any query begins or ends (`edges`). Within such a pane the tuples of one key
that satisfy the same conditions become one *entry* (`entries`), which holds a *partial* for each thing that
an aggregate needs to know (`partials`, `sums`). Entries are ordered by key for each set of conditions
(`view`); a window is then a span of neighbouring entries (`spans`), and its result takes as long as a look at
both ends of the span (`figures`), however many tuples are in it.
"""
