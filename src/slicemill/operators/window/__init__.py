"""Aggregates over windows, evaluated by one of several strategies.

    rows, watermark                                         rows and watermark of each query
          |                                                             ^
          v                                                             |
    WindowStep, SharedWindowStep (`step`)  -------------------->  schema, numbering, errors
          |            ^
          | advance    | emissions, due, state
          v            |
    strategy, chosen once per operator (`strategies`)

A strategy adds rows to its state, advances to a watermark, emits the results of the windows that have ended,
and evicts what no later window reads. `state` is what a checkpoint stores. `due` is the watermark at which
the next window ends.

| strategy | chosen for | idea |
|---|---|---|
| `panes.PaneWindows` | RANGE with SLIDE, of all queries with equal keys | partial aggregates of panes |
| `over.SortedWindows` | OVER with built-in aggregates | a window is a range of the sorted rows |
| `routines.RoutineWindows` | OVER with other aggregates | compiled code adds and removes each row |
| `expiring_rows.CountedWithOver` | GROUP BY over ROWS n, if OVER gives equal results | OVER by tuple number |
| `expiring_rows.CountedWindows` | GROUP BY over ROWS n, otherwise | stores the last n rows |
| `expiring_rows.TimedWindows` | GROUP BY over joined rows | rows expire in any order |
| `top.TopWindows` | ORDER BY, LIMIT and ranks of each window | sorts the rows of a timestamp |
| `session.step.SessionWindows` | SESSION | stores the rows of open sessions |

    ts           0   1   2   3   4   5   6   7   8   9
    tuples       a       b c       d   e       f
    panes        [ a ) [ b  c  ) [ d  e  ) [ f   )          windows are unions of panes
    sorted       a  [b  c  d  e)  f                         windows are ranges of rows
    sessions     [ a )   [ b c    d   e  )   [ f )          windows end when no row arrives in time
"""
