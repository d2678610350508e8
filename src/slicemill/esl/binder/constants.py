"""Check constant arguments against the ranges that functions declare."""

from __future__ import annotations

from sqlglot import exp

from slicemill.argument_range import ArgumentRange
from slicemill.esl.syntax.dialect import to_esl
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import span_of
from slicemill.esl.types.expression import Expr, Literal


def check_constant(
    name: str, range_: ArgumentRange | None, argument: Expr, node: exp.Expression, hint: str = ""
) -> None:
    """Reject a constant argument that is out of range.

    NULL passes, because the result is then NULL.
    """
    value = argument.value if isinstance(argument, Literal) else None
    if range_ is not None and value is not None and not range_.takes(value):
        said = f"{name} wants {range_.words} here, this is {to_esl(node)}"
        raise Mistake(said, span_of(node), hint or range_.hint(value))
