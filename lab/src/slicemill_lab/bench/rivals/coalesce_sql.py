"""Runs of equal values over sliding windows, as batch queries in Spark SQL.

Times are in microseconds. Both formulations first find the runs over all time, with window functions per key.
Then one assigns every tuple to each of its windows and groups the tuples. The other first aggregates runs,
with a list of the start times of their tuples, and assigns whole runs to windows.
"""

from __future__ import annotations

_RUNS = """
WITH timed AS (SELECT k, v, unix_micros(ts) AS t FROM event),
marked AS (
  SELECT k, v, t, lead(t) OVER (PARTITION BY k ORDER BY t) AS until,
         CASE WHEN v = lag(v) OVER (PARTITION BY k ORDER BY t) THEN 0 ELSE 1 END AS begun
  FROM timed),
numbered AS (
  SELECT k, v, t, until, sum(begun) OVER (PARTITION BY k ORDER BY t ROWS UNBOUNDED PRECEDING) AS run
  FROM marked)
"""

_TUPLES = """, placed AS (
  SELECT k, v, run, t, until,
         explode(transform(sequence(t DIV {slide} + 1, least((t + {range}) DIV {slide}, {last})),
                           number -> number * {slide})) AS e
  FROM numbered WHERE t DIV {slide} + 1 <= {last})
SELECT k, v, e, min(t) AS b, max(least(coalesce(until, e), e)) AS f
FROM placed GROUP BY k, v, run, e HAVING f - b >= {least}
"""

_WHOLE_RUNS = """, runs AS (
  SELECT k, v, run, min(t) AS first, max(t) AS newest, collect_list(t) AS stamps,
         max(coalesce(until, 9223372036854775807)) AS until
  FROM numbered GROUP BY k, v, run),
placed AS (
  SELECT k, v, first, stamps, until,
         explode(transform(sequence(first DIV {slide} + 1, least((newest + {range}) DIV {slide}, {last})),
                           number -> number * {slide})) AS e
  FROM runs WHERE first DIV {slide} + 1 <= {last}),
shown AS (
  SELECT k, v, e, least(until, e) AS f,
         CASE WHEN first >= e - {range} THEN first
              ELSE array_min(filter(stamps, t -> t >= e - {range})) END AS b
  FROM placed)
SELECT k, v, e, b, f FROM shown WHERE f - b >= {least}
"""

FORMULATIONS = {"tuples into windows": _RUNS + _TUPLES, "runs into windows": _RUNS + _WHOLE_RUNS}
