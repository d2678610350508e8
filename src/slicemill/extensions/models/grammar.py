"""Parse CREATE MODEL.

CREATE MODEL name(parameter REAL, …[; constant REAL, …]) [: (result, …)] [WITH (…)] AS expression, …
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sqlglot import exp

from slicemill.sql.cursor import Cursor
from slicemill.sql.grammar.functions import declaration
from slicemill.sql.grammar.statements import STATEMENT_STARTS, options
from slicemill.sql.nodes import CreateObject, ExtensionNode, at, child
from slicemill.sql.printer import EslGenerator


class CreateModel(CreateObject):
    """Syntax node of CREATE MODEL.

    `texts` are its formulas with normalised spaces, one for each of `results`. The `meta["written"]` of each
    text has the original spacing, so that errors point to the right column.
    """

    kind = "MODEL"
    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "arguments": True,
        "constants": False,
        "results": False,
        "options": False,
        "texts": True,
    }

    def esl(self, generator: EslGenerator) -> str:
        options = child(self, "options")
        clause = f" WITH ({generator.listing(options)})" if options else ""
        arguments, constants = generator.listing(child(self, "arguments")), child(self, "constants")
        arguments += f"; {generator.listing(constants)}" if constants else ""
        results = f" : ({generator.listing(child(self, 'results'))})" if child(self, "results") else ""
        head = f"CREATE MODEL {generator.sql(self, 'this')}({arguments}){results}{clause}"
        return f"{head} AS{generator.sep()}{', '.join(text.name for text in child(self, 'texts'))}"


class ModelResults(ExtensionNode):
    """Syntax node of the results of a formula: `name`, or `name[index = first TO last]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "index": False, "first": False, "last": False}

    def esl(self, generator: EslGenerator) -> str:
        name, index, first, last = (generator.sql(self, key) for key in ("this", "index", "first", "last"))
        return f"{name}[{index} = {first} TO {last}]" if index else name


def create_model(c: Cursor, name: exp.Identifier) -> CreateModel:
    """Parse the rest of CREATE MODEL. `name` has already been read."""
    c.expect("(")
    arguments = [] if c.word() in (")", ";") else c.listing(lambda: declaration(c, "a parameter"))
    constants = c.listing(lambda: declaration(c, "a constant")) if c.accept(";") else None
    c.expect(")")
    results = None
    if c.accept(":") or c.accept("RETURNS"):
        c.expect("(")
        results = c.listing(lambda: _result(c))
        c.expect(")")
    model = CreateModel(this=name, arguments=arguments, constants=constants, results=results)
    model.set("options", options(c) if c.accept("WITH") else None)
    c.expect("AS")
    model.set("texts", expressions(c, STATEMENT_STARTS, several=results is not None))
    return model


def _result(c: Cursor) -> ModelResults:
    """Parse a result of a model, `name`, or several results, `name[k = 0 TO 7]`."""
    start = c.span()
    node = ModelResults(this=c.name("a name for the result"))
    if c.accept("["):
        node.set("index", c.name("a name for the index"))
        c.expect("=")
        node.set("first", _whole(c))
        c.expect("TO")
        node.set("last", _whole(c))
        c.expect("]")
    return at(node, c.span_from(start))


def _whole(c: Cursor) -> exp.Expression:
    place = c.span()
    number = c.number()
    if number is None or not number.isdigit():
        c.note("a whole number")
        c.fail()
    return at(exp.Literal(this=number, is_string=False), place)


def expressions(c: Cursor, ends: Sequence[str], several: bool) -> list[exp.Var]:
    """Read the formulas of a model. With `several`, they are separated by commas."""
    formulas = [expression(c, ends, several)]
    while several and c.accept(","):
        formulas.append(expression(c, ends, several))
    return formulas


def expression(c: Cursor, ends: Sequence[str], several: bool) -> exp.Var:
    """Read the text of one formula, up to a semicolon or the next statement.

    The text is parsed later, because formulas have their own parser.
    """
    start = c.span()
    short, written, depth, brackets = "", "", 0, 0
    while not c.done and c.word() not in ends and not (c.word() == ";" and brackets <= 0):
        if several and c.word() == "," and depth <= 0:
            break
        depth += (c.word() == "(") - (c.word() == ")")
        # A semicolon in brackets belongs to the formula, as in T[f; g].
        brackets += (c.word() == "[") - (c.word() == "]")
        span = c.span()
        gap = span.start - start.start - len(written)
        text = c.text[span.start : span.end]
        short += " " * bool(gap) + text
        written += " " * gap + text  # comments become blanks
        c.advance()
    if not short:
        c.note("an expression such as sum(x)/n")
        c.fail()
    node = at(exp.Var(this=short), c.span_from(start))
    node.meta["written"] = written
    return node
