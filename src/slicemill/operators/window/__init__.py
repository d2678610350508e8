"""Execution of aggregates over windows, by one of several strategies.

    rows, watermark                                         rows and watermark of each query
          |                                                             ^
          v                                                             |
    WindowStep, SharedWindowStep (`step`)  -------------------->  schema, numbering, errors
          |            ^
          | advance    | emissions, due, state
          v            |
    strategy, chosen once per operator (`strategies`)

A strategy adds rows to its state, advances to a watermark, emits the results of the windows that have ended,
and evicts rows that no later window reads. A checkpoint stores the `state` of the strategy. `due` is the
watermark at which the next window ends.

| strategy | queries | how the strategy works |
|---|---|---|
| `panes.PaneWindows` | RANGE with SLIDE, all queries with equal keys | combines partial aggregates of panes |
| `over.SortedWindows` | OVER with built-in aggregates | sorts rows, so that a window is a range of rows |
| `routines.RoutineWindows` | OVER with other aggregates | compiled code adds and removes each row |
| `expiring_rows.CountedWithOver` | GROUP BY over ROWS n, if OVER gives equal results | runs OVER calls |
| `expiring_rows.CountedWindows` | other GROUP BY over ROWS n | stores the last n rows |
| `expiring_rows.TimedWindows` | GROUP BY over joined rows | stores rows, which expire in any order |
| `top.TopWindows` | ORDER BY, LIMIT and ranks of each window | sorts the rows of a timestamp |
| `session.step.SessionWindows` | SESSION | stores the rows of open sessions |

    ts           0   1   2   3   4   5   6   7   8   9
    tuples       a       b c       d   e       f
    panes        [ a ) [ b  c  ) [ d  e  ) [ f   )          windows are unions of panes
    sorted       a  [b  c  d  e)  f                         windows are ranges of rows
    sessions     [ a )   [ b c    d   e  )   [ f )          windows end when no row arrives in time
"""
