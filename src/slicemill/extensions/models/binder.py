"""Bind CREATE MODEL: check its declaration, parse its formulas, and locate errors in the statement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from sqlglot import exp

from slicemill.binder.context import Context
from slicemill.binder.functions import refuse_function
from slicemill.binder.types import bind_columns
from slicemill.catalog.catalog import Catalog
from slicemill.errors import did_you_mean, format_count, one_of
from slicemill.extensions.models.definition import ModelDefinition, ModelResult, ModelTemplate
from slicemill.extensions.models.flow import in_letters
from slicemill.extensions.models.grammar import CreateModel, ModelResults
from slicemill.extensions.models.letters import from_letters
from slicemill.extensions.models.model import Model, Nulls, expression
from slicemill.extensions.models.operators import ACCUMULATORS, SEARCHES
from slicemill.extensions.models.parse import MACROS, RESERVED, parse
from slicemill.extensions.models.scalars import FUNCTIONS
from slicemill.extensions.models.terms import Expr, ModelError, children
from slicemill.functions.signatures import SCALARS
from slicemill.sql import nodes
from slicemill.sql.errors import StatementError, TextSpan
from slicemill.sql.grammar.statements import MAX_HEIGHT
from slicemill.sql.nodes import child, span_of
from slicemill.types import DOUBLE, Schema

MOST_RESULTS = 256
# Trial values for the constants of a model: a count, a fraction, exponents
_TRIED = (Fraction(1), Fraction(1, 2), Fraction(2), Fraction(3))
_AGGREGATES = frozenset((*MACROS, *ACCUMULATORS, *SEARCHES))
_KNOWN = frozenset((*_AGGREGATES, *FUNCTIONS))
_WORD = re.compile(r"[A-Za-z_]\w*")
_TOKEN = re.compile(r"[A-Za-z_]\w*|[\d.]+|\S")


def bind_model(node: CreateModel, context: Context) -> ModelDefinition | ModelTemplate:
    _reject_known(node.this, context)
    declared = [*child(node, "arguments"), *(child(node, "constants") or ())]
    arguments = bind_columns(declared, untyped=DOUBLE)
    for declaration, column in zip(declared, arguments, strict=True):
        if column.type != DOUBLE:
            hint = "declare it as REAL: arguments of all numeric types are converted to REAL"
            raise StatementError(
                f"a model works on REAL, and {column.name} is {column.type}", span_of(declaration), hint
            )
        if column.name.lower() in RESERVED or not _WORD.fullmatch(column.name):
            hint = f"{one_of([*RESERVED])} have a fixed meaning in models, and a name begins with a letter"
            raise StatementError(
                f"{column.name} cannot name a parameter of a model", span_of(declaration.this), hint
            )
    nulls = _nulls(child(node, "options") or [])
    count = len(child(node, "arguments"))
    parameters = Schema(arguments.columns[:count])
    constants = [column.name.lower() for column in arguments.columns[count:]]
    texts, named = child(node, "texts"), child(node, "results")
    if not constants and named is None:
        model = _expression(texts[0], parameters, nulls)
        if not in_letters(texts[0].name):
            return ModelDefinition(node.this.name, model)
        rules = from_letters(texts[0].name, parameters.names).rules
        return ModelDefinition(node.this.name, model, texts[0].name, rules)
    if named is not None and len(named) != len(texts):
        raise StatementError(
            f"{format_count(len(texts), 'expression')} for {format_count(len(named), 'result')}",
            span_of(node.this),
            "write one expression for each result, separated by commas",
        )
    results: list[ModelResult] = []
    for text, result in zip(texts, named or [None], strict=True):
        results += _results(text, result, parameters, constants, nulls)
    _check_columns(results, node)
    return ModelTemplate(node.this.name, parameters.names, tuple(constants), tuple(results), nulls.value)


def _results(
    text: exp.Var,
    result: ModelResults | None,
    parameters: Schema,
    constants: Sequence[str],
    nulls: Nulls,
) -> Iterator[ModelResult]:
    """Yield the result columns of one formula of a model, after parsing it with trial values."""
    identifier = None if result is None else child(result, "index")
    index = None if identifier is None else identifier.name.lower()
    taken = index in RESERVED or index in constants or (index and parameters.find(index) is not None)
    if identifier is not None and taken:
        raise StatementError(
            f"{index} already has a meaning in this model",
            span_of(identifier),
            "give the index another name",
        )
    named = [*constants, *([] if index is None else [index])]
    model = _parse_with_trial_values(text, parameters, nulls, named)
    if result is None or index is None:
        yield ModelResult("" if result is None else result.this.name, model.text)
        return
    first, last = int(child(result, "first").name), int(child(result, "last").name)
    if not first <= last < first + MOST_RESULTS:
        raise StatementError(
            f"{first} TO {last} must be a range of 1 to {MOST_RESULTS} columns",
            span_of(result),
            "the first number must not be greater than the last number",
        )
    for place in range(first, last + 1):
        yield ModelResult(f"{result.this.name}{place}", model.text, ((index, Fraction(place)),))


def _parse_with_trial_values(
    text: exp.Var, parameters: Schema, nulls: Nulls, constants: Sequence[str]
) -> Model:
    """Parse a model with trial values for its constants, because each call sets other values.

    Calls check the ranges of the actual values.
    """
    first: StatementError | None = None
    for number in _TRIED if constants else _TRIED[:1]:
        try:
            return _expression(text, parameters, nulls, dict.fromkeys(constants, number))
        except StatementError as error:
            first = first or error
    assert first is not None, "at least one value has been tried"
    raise first


def _check_columns(results: Sequence[ModelResult], node: CreateModel) -> None:
    names = [result.column.lower() for result in results]
    if len(names) > MOST_RESULTS:
        raise StatementError(
            f"a model has at most {MOST_RESULTS} results, not {len(names)}", span_of(node.this)
        )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        hint = "rename one of the results"
        raise StatementError(f"two results have the name {twice[0]}", span_of(node.this), hint)


def _reject_known(identifier: exp.Identifier, context: Context) -> None:
    name, catalog = identifier.name, context.catalog
    refuse_function(identifier, context)
    if name.lower() in SCALARS:
        raise StatementError(
            f"{name} is a scalar function already", span_of(identifier), "choose another name"
        )
    if name.lower() in catalog.callables or any(catalog.declared_versions(name)):
        kind = (
            catalog.callables[name.lower()].kind.lower() if name.lower() in catalog.callables else "aggregate"
        )
        hint = f"choose another name, or DROP {kind.upper()} {name} first"
        raise StatementError(
            f"there is a{'n' * (kind[0] == 'a')} {kind} {name} already", span_of(identifier), hint
        )


def _nulls(options: Sequence[nodes.Option]) -> Nulls:
    found = Nulls.SKIP
    for option in options:
        if option.this.name.lower() != "nulls":
            raise StatementError(
                f"a model has no option {option.this.name}", span_of(option), "there is one option, nulls"
            )
        value = str(child(option, "value").name).lower()
        if value not in list(Nulls):
            known = one_of([f"'{name}'" for name in Nulls])
            raise StatementError(f"nulls is {known}", span_of(option))
        found = Nulls(value)
    return found


def _expression(
    node: exp.Var, arguments: Schema, nulls: Nulls, constants: Mapping[str, Fraction] | None = None
) -> Model:
    """Parse the formula of a model. Names are case-insensitive, as everywhere in ESL."""
    spelt = {name.lower(): name for name in arguments.names}

    def small(word: re.Match[str]) -> str:
        lower = word.group().lower()
        return spelt.get(lower, lower)

    short, written = node.name, node.meta["written"]
    if in_letters(short):
        return _of_letters(node, arguments, nulls)
    short, written = _WORD.sub(small, short), _WORD.sub(small, written)
    try:
        _check_height(written, node, constants)
        expression(written, arguments.names, nulls=nulls, constants=constants)
    except ModelError as error:
        known = [*arguments.names, *(constants or ())]
        raise _bind_error(error, written, span_of(node).start, known) from None
    return expression(short, arguments.names, nulls=nulls, constants=constants)


def _of_letters(node: exp.Var, arguments: Schema, nulls: Nulls) -> Model:
    try:
        return expression(node.name, arguments.names, nulls=nulls)
    except ModelError as error:
        raise StatementError(error.what, span_of(node), error.hint) from None


def _check_height(text: str, node: exp.Var, constants: Mapping[str, Fraction] | None) -> None:
    """Raise an error for deeply nested models, because models are processed by recursion."""
    try:
        level: list[Expr] = [parse(text, constants)]
    except RecursionError:
        level = []
    else:
        for _ in range(MAX_HEIGHT):
            level = [part for expr in level for part in children(expr)]
            if not level:
                return
    hint = "name parts of it with let, or declare parts of it as separate models"
    raise StatementError(f"this is nested more than {MAX_HEIGHT} levels deep", span_of(node), hint)


def _bind_error(error: ModelError, text: str, start: int, parameters: Sequence[str]) -> StatementError:
    """Convert an error of the model parser into a StatementError with a position in the script."""
    if error.at is None:
        text_of_error = error.what
        message, _, hint = text_of_error.partition(": ")
        if (unknown := re.match(r"the model uses (\w+)", text_of_error)) is not None:
            message = f"{unknown[1]} is no parameter of the model"
            hint = did_you_mean(unknown[1], [*parameters, *RESERVED]) or _list_parameters(parameters)
        return StatementError(message, _span(_locate_error(text_of_error, text), text, start), hint)
    hint = error.hint
    if "no function" in error.what:
        hint = did_you_mean(error.what.split()[-1], _KNOWN) or f"there are {', '.join(sorted(_KNOWN))}"
    return StatementError(error.what, _span(error.at, text, start), hint)


def _list_parameters(parameters: Sequence[str]) -> str:
    return f"its parameters are {', '.join(parameters)}" if parameters else "it has no parameters"


def _span(column: int | None, text: str, start: int) -> TextSpan:
    """Return the span of the token at a column, or of the whole formula if the column is None."""
    if column is None:
        return TextSpan(start, start + len(text))
    token = _TOKEN.match(text, column)
    return TextSpan(start + column, start + (token.end() if token else column))


def _locate_error(message: str, text: str) -> int | None:
    """Return the text position of the word to which an error message refers, or None if unknown."""
    word = re.match(r"(?:the model uses )?(\w+)", message)
    inside = " inside " in message
    places = list(_find_words(text))
    anywhere = message.startswith("the model uses")
    for name, column, within in places:
        if word is not None and name == word[1] and (anywhere or within == inside):
            return column
    # The message may name a sum of an expanded statistic such as variance(x). Its call is the position then.
    inner = [column for name, column, within in places if within and name in _AGGREGATES]
    return inner[0] if inside and inner else None


def _find_words(text: str) -> Iterator[tuple[str, int, bool]]:
    """Yield each word of a formula, its text position, and True if it is inside an aggregate."""
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


# Models built in Python


def with_model(name: str, model: Model, catalog: Catalog) -> Catalog:
    """Return a copy of the catalog in which a model is registered under a name."""
    catalog = catalog.copy()
    catalog.add(ModelDefinition(name, model))
    return catalog
