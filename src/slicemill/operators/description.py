"""Descriptions of operators in plans, in terms of SQL and relational algebra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import Window, WindowCall
from slicemill.esl.types.relation import AggregateCall, SelectItem

Fact: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Description:
    """Symbol of relational algebra (or none), title, and facts as (what, text).

    The most important fact is first.
    """

    symbol: str
    title: str
    facts: tuple[Fact, ...] = ()

    @property
    def headline(self) -> str:
        return f"{self.symbol} {self.title}" if self.symbol else self.title


def many(number: int, word: str) -> str:
    """Return a number with a noun in singular or plural.

    >>> many(1, "join"), many(2, "join")
    ('1 join', '2 joins')
    """
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def each(aliases: Sequence[str], windows: Sequence[str]) -> str:
    """Return the window of each input; only once if all are equal."""
    if len(windows) > 1 and len(set(windows)) == 1:
        return f"{windows[0]} each"
    return ", ".join(f"{alias} {window}".strip() for alias, window in zip(aliases, windows, strict=True))


def partition(exprs: Sequence[Expr]) -> tuple[Fact, ...]:
    return (("partition by", ", ".join(render(expr) for expr in exprs)),) if exprs else ()


def grouped(calls: Sequence[AggregateCall], group_by: Sequence[SelectItem]) -> tuple[Fact, ...]:
    facts = [("compute", ", ".join(call_text(call) for call in calls))] if calls else []
    if group_by:
        facts.append(("group by", ", ".join(render(item.expr) for item in group_by)))
    return tuple(facts)


def call_text(call: AggregateCall | WindowCall) -> str:
    arguments = ", ".join(render(argument) for argument in call.arguments) or "*"
    return f"{call.name}({'DISTINCT ' if call.distinct else ''}{arguments})"


def window_calls(calls: Sequence[WindowCall]) -> tuple[Fact, ...]:
    """Return calls over one common window together, else each with its window."""
    if len({(call.window, call.partition_by) for call in calls}) > 1:
        return tuple(("compute", f"{call_text(call)} OVER ({_over(call)})") for call in calls)
    computed = ", ".join(call_text(call) for call in calls)
    window = ("window", preceding(calls[0].window))
    return (("compute", computed), *partition(calls[0].partition_by), window)


def length_of(window: Window) -> str:
    """Return a window without its slide."""
    return str(Window(window.frame, window.extent))


def preceding(window: Window) -> str:
    length = length_of(window)
    return f"{length} PRECEDING{str(window).removeprefix(length)}"


def _over(call: WindowCall) -> str:
    parts = [f"PARTITION BY {text}" for _, text in partition(call.partition_by)]
    return " ".join([*parts, preceding(call.window)])
