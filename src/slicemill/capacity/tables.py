"""Results of a simulation as tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from rich.table import Table

from slicemill.metrics.quality_of_service import QueryStatistics, Summary
from slicemill.scheduling.rehearsal import Outcome, QueryOutcome

# minimum relative difference of a measure at which two policies are compared
CLEARLY = 0.1

MEASURES = ("mean response", "longest response", "mean slowdown", "l2 slowdown", "staleness")


def measures(outcome: Outcome) -> dict[str, float]:
    """Return the measures by which policies are compared. A lower value is better."""
    figures = outcome.overall()
    return {
        "mean response": figures.response.mean,
        "longest response": figures.response.largest,
        "mean slowdown": figures.slowdown.mean,
        "l2 slowdown": figures.slowdown.root_mean_square,
        "staleness": outcome.staleness,
    }


def policies_table(title: str, outcomes: Mapping[str, Outcome]) -> Table:
    """Return a table with one line per policy, over all queries."""
    table = _table(title, "policy", *_COLUMNS, "l2 of slowdown")
    for policy, outcome in outcomes.items():
        figures = outcome.overall()
        cells = _cells(figures, outcome.staleness, outcome.mean_waiting, outcome.most_waiting)
        table.add_row(policy, *cells, _number(figures.slowdown.root_mean_square))
    return table


def queries_table(title: str, outcomes: Mapping[str, Outcome]) -> Table:
    """Return a table with one line per query and policy."""
    table = _table(title, "query", *(("policy",) if len(outcomes) > 1 else ()), *_COLUMNS)
    names = next(iter(outcomes.values())).queries
    for name in names:
        for number, (policy, outcome) in enumerate(outcomes.items()):
            query = outcome.queries[name]
            cells = _cells(query.figures, query.staleness, query.mean_waiting, query.most_waiting)
            table.add_row("" if number else name, *((policy,) if len(outcomes) > 1 else ()), *cells)
    return table


_COLUMNS = ("results", "response", "longest", "slowdown", "greatest", "stale", "waiting", "most")


def _cells(figures: QueryStatistics, stale: float, mean_rows: float, most_rows: int) -> Iterator[str]:
    response, slowdown = figures.response, figures.slowdown
    yield f"{response.count:,}"
    yield from (_seconds(value) for value in (response.mean, response.largest))
    yield from (_number(value) for value in (slowdown.mean, slowdown.largest))
    yield "" if math.isnan(stale) else f"{stale:.1%}"
    yield from (f"{mean_rows:,.0f}", f"{most_rows:,}")


def _table(title: str, *columns: str) -> Table:
    # The column `policy` narrows the gaps, so that no number is cut at 80 columns. Long names are folded.
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        collapse_padding="policy" in columns,
        header_style="bold",
    )
    for column in columns:
        table.add_column(
            column,
            justify="left" if column in ("query", "policy") else "right",
            no_wrap=column == "policy" or column in _COLUMNS,
            overflow="fold",
        )
    return table


def _seconds(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:,.2f} s" if value < 10 else f"{value:,.1f} s"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}" if value < 10 else f"{value:,.1f}"


# -- Predicted and measured outcomes ----------------------------------------------------------------------


def agreement(
    predicted: Mapping[str, Outcome], measured: Mapping[str, Outcome]
) -> dict[str, tuple[list[str], list[str], int, int]]:
    """Compare how prediction and measurement rank the policies, for each measure.

    Return both orders, best first, then the number of pairs in the same order, and the number of pairs. Only
    pairs that the prediction clearly separates are counted.
    """
    found = {}
    for measure in MEASURES:
        before = {policy: measures(outcome)[measure] for policy, outcome in predicted.items()}
        after = {policy: measures(outcome)[measure] for policy, outcome in measured.items()}
        pairs = [
            (a, b)
            for a, b in combinations(before, 2)
            if abs(before[a] - before[b]) > CLEARLY * max(before[a], before[b])
        ]
        same = sum((before[a] < before[b]) == (after[a] < after[b]) for a, b in pairs)
        found[measure] = (
            sorted(before, key=before.__getitem__),
            sorted(after, key=after.__getitem__),
            same,
            len(pairs),
        )
    return found


def agreement_table(predicted: Mapping[str, Outcome], measured: Mapping[str, Outcome]) -> Table:
    table = _table("Order of policies, best first", "by", "predicted", "measured", "clear pairs in order")
    for column in table.columns[:3]:
        column.justify = "left"
    for measure, (before, after, same, pairs) in agreement(predicted, measured).items():
        table.add_row(
            measure, " ".join(before), " ".join(after), f"{same} of {pairs}" if pairs else "none clear"
        )
    return table


# -- JSON -------------------------------------------------------------------------------------------------


def outcomes_as_json(outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    return [
        {
            "policy": policy,
            **_plain(outcome.overall(), outcome.staleness, outcome.mean_waiting, outcome.most_waiting),
            "behind_s": _round_significant(outcome.behind_s),
            "queries": [{"query": name, **_plain_query(query)} for name, query in outcome.queries.items()],
        }
        for policy, outcome in outcomes.items()
    ]


def _plain_query(query: QueryOutcome) -> dict[str, Any]:
    return _plain(query.figures, query.staleness, query.mean_waiting, query.most_waiting)


def _plain(figures: QueryStatistics, stale: float, mean_rows: float, most_rows: int) -> dict[str, Any]:
    return {
        "response_s": _plain_summary(figures.response),
        "slowdown": _plain_summary(figures.slowdown),
        "staleness": _round_significant(stale),
        "mean_rows_waiting": _round_significant(mean_rows),
        "most_rows_waiting": most_rows,
    }


def _plain_summary(summary: Summary) -> dict[str, Any]:
    return {
        "count": summary.count,
        "mean": _round_significant(summary.mean),
        "max": _round_significant(summary.largest),
        "l2": _round_significant(summary.l2),
    }


def _round_significant(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
