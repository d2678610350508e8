"""Objects in Python that a script names as `module:name`."""

from __future__ import annotations

import importlib

from sqlglot import exp

from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import span_of


def named_object(literal: exp.Literal, rule: str, example: str) -> tuple[str, str]:
    """The module and the name in it."""
    module, _, name = literal.name.partition(":")
    if not module or not name:
        raise Mistake(rule, span_of(literal), f"as in {example}")
    return module, name


def imported(literal: exp.Literal, module: str, name: str) -> object:
    """The object; importing runs the module's code."""
    try:
        found: object = getattr(importlib.import_module(module), name)
    except Exception as problem:  # a user's module may fail to import in any way
        raise Mistake(
            f"cannot import {literal.name}: {problem}", span_of(literal), "is its folder on PYTHONPATH?"
        ) from None
    return found
