"""What queries need of a stream before it is stored: rows that no query wants need not cross to Python.

Only conditions that cannot fail are moved to Catalyst: a query that divides by zero must stop alone, and not
take the stream with it.
"""

from __future__ import annotations

from slicemill.esl.expression import Call, ColumnRef, Expr, Literal, walk
from slicemill.esl.types import BOOLEAN, Kind
from slicemill.plan.graph import QueryGraph
from slicemill.plan.operators import Filter

_SAFE = {"=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or", "not", "in", "isnull", "isnotnull", "like"}


def cannot_fail(expr: Expr) -> bool:
    return all(_is_safe(part) for part in walk(expr))


def _is_safe(part: Expr) -> bool:
    if isinstance(part, (ColumnRef, Literal)):
        return True
    if not isinstance(part, Call):
        return False
    if part.function == "%":
        divisor = part.arguments[1]
        return isinstance(divisor, Literal) and divisor.value not in (0, None)
    periods = any(argument.type.kind is Kind.PERIOD for argument in part.arguments)
    return part.function in _SAFE and not periods


def needed_rows(stream: str, graph: QueryGraph) -> Expr | None:
    """The condition that some query has on the stream's rows; None where all rows are needed."""
    conditions: list[Expr] = []
    for node in graph.consumers(stream):
        if not isinstance(node.operator, Filter) or not cannot_fail(node.operator.condition):
            return None
        if node.operator.condition not in conditions:
            conditions.append(node.operator.condition)
    if not conditions:
        return None
    wanted = conditions[0]
    for condition in conditions[1:]:
        wanted = Call("or", (wanted, condition), BOOLEAN)
    return wanted
