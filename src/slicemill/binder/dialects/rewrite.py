"""Normalization of a SELECT: syntax of other systems is rewritten to plain ESL.

    TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECONDS)    bid [RANGE 10 SECONDS SLIDE 10 SECONDS]
    GROUP BY window(ts, '10 seconds')                           bid [RANGE 10 SECONDS SLIDE 10 SECONDS]
    k IN (SELECT k FROM TUMBLE(…) AS R                          L SEMI JOIN TUMBLE(…) AS R ON L.k = R.k
      WHERE L.window_start = R.window_start AND …)              AND L.window_start = R.window_start AND …
    count(*) FILTER (WHERE price > 9)                           count(CASE WHEN price > 9 THEN 1 END)
    lag(price) OVER (PARTITION BY item)                         first(price) OVER (… ROWS 1 PRECEDING)
    GROUP BY 1, total                                           the expressions of the select list
    GROUP BY ROLLUP (a, b)                                      UNION of GROUP BY a, b; GROUP BY a; all
    SELECT explode(tags) AS tag FROM s                          SELECT tag FROM s, UNNEST(tags) AS tag

Equivalent queries then get the same plan, so that they can share operators and state.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.binder.calls import is_aggregate
from slicemill.binder.context import Context
from slicemill.binder.dialects.functions import CHANGED, rewrite_calls, rewrite_explode
from slicemill.binder.dialects.grouping import grouping_sets, resolve_group_names
from slicemill.binder.dialects.windows import (
    BOUND_COLUMNS,
    BOUNDS,
    add_group_windows,
    rewrite_lead,
    rows_with_windows,
)
from slicemill.binder.select_list import name_of
from slicemill.binder.semi_joins import join_same_windows
from slicemill.sql.nodes import at, span_of


def normalize_select(written: exp.Select, context: Context) -> exp.Expression:
    """Return the SELECT in plain ESL, or a UNION of several SELECTs.

    `written` is not modified.
    """
    select = written.copy()
    select.set("with_", None)  # the caller has bound the WITH definitions
    _keep_names(select, context)
    resolve_group_names(select, context)
    add_group_windows(select, context)
    join_same_windows(select, context)
    rows_with_windows(select, context)
    rewrite_explode(select, context)
    rewrite_calls(select, context)
    following = rewrite_lead(select, context)
    if following is not None:
        return following
    return grouping_sets(select, context)


def _keep_names(select: exp.Select, context: Context) -> None:
    """Give rewritten SELECT items their original text as alias.

    The output columns then have the names that the original SELECT would give them.
    """
    items = []
    for item in select.expressions:
        if _changes(item, context):
            name = exp.Identifier(this=name_of(item), quoted=True)
            item = at(exp.Alias(this=item, alias=name), span_of(item))
        items.append(item)
    select.set("expressions", items)


def _changes(item: exp.Expression, context: Context) -> bool:
    """Return True if a rewrite may change the name of a SELECT item.

    Aggregate calls are excluded, because the names of their columns do not change.
    """
    if isinstance(item, exp.Column):
        return item.name.lower() in ("start", "end", *BOUND_COLUMNS)
    if isinstance(item, (exp.Star, exp.Alias)):
        return False
    catalog = context.catalog
    return any(
        call.args.get("filter") is not None
        or (
            call.name.lower() in (*CHANGED, *BOUNDS)
            and call.name.lower() not in catalog.functions
            and not is_aggregate(call.name, catalog)
        )
        for call in item.find_all(exp.Anonymous)
    )
