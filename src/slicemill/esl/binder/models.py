"""CREATE MODEL: names, parameters, mistakes at their place in the expression."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot import exp

from slicemill.errors import did_you_mean, one_of
from slicemill.esl.binder.context import Context
from slicemill.esl.binder.functions import refuse_function
from slicemill.esl.binder.types import bind_columns
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.grammar.statements import MAX_HEIGHT
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.syntax.source import TextSpan
from slicemill.esl.types.model import ModelDefinition
from slicemill.esl.types.schema import DOUBLE, Schema
from slicemill.model.macros import MACROS
from slicemill.model.model import Model, expression
from slicemill.model.naive import Nulls
from slicemill.model.operators import ACCUMULATORS, SEARCHES
from slicemill.model.parse import RESERVED, parse
from slicemill.model.scalars import FUNCTIONS
from slicemill.model.terms import Expr, ModelError, children
from slicemill.scalar.signatures import SCALARS

_AGGREGATES = frozenset((*MACROS, *ACCUMULATORS, *SEARCHES))
_KNOWN = frozenset((*_AGGREGATES, *FUNCTIONS))
_WORD = re.compile(r"[A-Za-z_]\w*")
_TOKEN = re.compile(r"[A-Za-z_]\w*|[\d.]+|\S")


def bind_model(node: nodes.CreateModel, context: Context) -> ModelDefinition:
    _refuse_known(node.this, context)
    arguments = bind_columns(child(node, "arguments"), untyped=DOUBLE)
    for declaration, column in zip(child(node, "arguments"), arguments, strict=True):
        if column.type != DOUBLE:
            hint = "declare it as REAL: whatever number is given for it is taken as one"
            raise Mistake(
                f"a model works on REAL, and {column.name} is {column.type}", span_of(declaration), hint
            )
        if column.name.lower() in RESERVED or not _WORD.fullmatch(column.name):
            hint = f"{one_of([*RESERVED])} mean something else there, and a name begins with a letter"
            raise Mistake(
                f"{column.name} cannot name a parameter of a model", span_of(declaration.this), hint
            )
    nulls = _nulls(child(node, "options") or [])
    text = child(node, "text")
    return ModelDefinition(node.this.name, _expression(text, arguments, nulls))


def _refuse_known(identifier: exp.Identifier, context: Context) -> None:
    name, catalog = identifier.name, context.catalog
    refuse_function(identifier, context)
    if name.lower() in SCALARS:
        raise Mistake(f"{name} is a scalar function already", span_of(identifier), "choose another name")
    if any(catalog.declared_versions(name)):
        kind = "model" if name.lower() in catalog.models else "aggregate"
        hint = f"choose another name, or DROP {kind.upper()} {name} first"
        raise Mistake(f"there is a{'n' * (kind[0] == 'a')} {kind} {name} already", span_of(identifier), hint)


def _nulls(options: Sequence[nodes.Option]) -> Nulls:
    found = Nulls.SKIP
    for option in options:
        if option.this.name.lower() != "nulls":
            raise Mistake(
                f"a model has no option {option.this.name}", span_of(option), "there is one option, nulls"
            )
        value = str(child(option, "value").name).lower()
        if value not in list(Nulls):
            known = one_of([f"'{name}'" for name in Nulls])
            raise Mistake(f"nulls is {known}", span_of(option))
        found = Nulls(value)
    return found


def _expression(node: exp.Var, arguments: Schema, nulls: Nulls) -> Model:
    """Names are the same in capitals and small letters, as everywhere in ESL."""
    spelt = {name.lower(): name for name in arguments.names}

    def small(word: re.Match[str]) -> str:
        lower = word.group().lower()
        return spelt.get(lower, lower)

    written = _WORD.sub(small, node.meta["written"])
    try:
        _check_height(written, node)
        expression(written, arguments.names, nulls=nulls)
    except ModelError as error:
        raise _mistake(error, written, span_of(node).start, arguments.names) from None
    return expression(_WORD.sub(small, node.name), arguments.names, nulls=nulls)


def _check_height(text: str, node: exp.Var) -> None:
    """Models are taken apart by recursion, as statements are."""
    try:
        level: list[Expr] = [parse(text)]
    except RecursionError:
        level = []
    else:
        for _ in range(MAX_HEIGHT):
            level = [part for expr in level for part in children(expr)]
            if not level:
                return
    hint = "name parts of it with let, or take parts of it as models of their own"
    raise Mistake(f"this is nested more than {MAX_HEIGHT} levels deep", span_of(node), hint)


def _mistake(error: ModelError, text: str, start: int, parameters: Sequence[str]) -> Mistake:
    """What a model's parser says, at its place in the script."""
    if error.at is None:
        said = error.what
        message, _, hint = said.partition(": ")
        if (unknown := re.match(r"the model uses (\w+)", said)) is not None:
            message = f"{unknown[1]} is no parameter of the model"
            hint = did_you_mean(unknown[1], [*parameters, *RESERVED]) or _they_are(parameters)
        return Mistake(message, _span(_guess(said, text), text, start), hint)
    hint = error.hint
    if "no function" in error.what:
        hint = did_you_mean(error.what.split()[-1], _KNOWN) or f"there are {', '.join(sorted(_KNOWN))}"
    return Mistake(error.what, _span(error.at, text, start), hint)


def _they_are(parameters: Sequence[str]) -> str:
    return f"its parameters are {', '.join(parameters)}" if parameters else "it has no parameters"


def _span(column: int | None, text: str, start: int) -> TextSpan:
    """The token at a column of the expression; all of it where there is none."""
    if column is None:
        return TextSpan(start, start + len(text))
    token = _TOKEN.match(text, column)
    return TextSpan(start + column, start + (token.end() if token else column))


def _guess(said: str, text: str) -> int | None:
    """Where the word stands that a message without a place begins with, or names as used."""
    word = re.match(r"(?:the model uses )?(\w+)", said)
    inside = " inside " in said
    places = list(_words(text))
    anywhere = said.startswith("the model uses")
    for name, column, within in places:
        if word is not None and name == word[1] and (anywhere or within == inside):
            return column
    # A statistic has been written out in sums by then.
    inner = [column for name, column, within in places if within and name in _AGGREGATES]
    return inner[0] if inside and inner else None


def _words(text: str) -> Iterator[tuple[str, int, bool]]:
    """Every word with its column, and whether it stands inside an aggregate."""
    open_calls: list[bool] = []
    before = ""
    for token in _TOKEN.finditer(text):
        if token.group() == "(":
            open_calls.append(before in _AGGREGATES)
        elif token.group() == ")" and open_calls:
            open_calls.pop()
        elif _WORD.fullmatch(token.group()):
            yield token.group(), token.start(), any(open_calls)
        before = token.group()
