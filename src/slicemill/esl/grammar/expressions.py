"""Scalar expressions, from OR down to literals, by precedence."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokens import TokenType

from slicemill.esl import nodes
from slicemill.esl.cursor import Cursor
from slicemill.esl.errors import Mistake
from slicemill.esl.grammar import queries, windows
from slicemill.esl.nodes import at, span_of
from slicemill.esl.source import Span
from slicemill.esl.tokens import RESERVED
from slicemill.esl.units import unit_name

# L7: Allen's thirteen, then TSQL's looser ones under names that do not clash with Allen's.
INTERVAL_RELATIONS = (
    "BEFORE",
    "AFTER",
    "MEETS",
    "MET BY",
    "OVERLAPS",
    "OVERLAPPED BY",
    "STARTS",
    "STARTED BY",
    "DURING",
    "CONTAINS",
    "FINISHES",
    "FINISHED BY",
    "EQUALS",
    "INTERSECTS",
    "PRECEDES",
    "COVERS",
)

_COMPARISONS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "==": exp.EQ,
    "<>": exp.NEQ,
    "!=": exp.NEQ,
    "<=": exp.LTE,
    ">=": exp.GTE,
    "<": exp.LT,
    ">": exp.GT,
    "<=>": exp.NullSafeEQ,
}
_BITWISE: dict[str, type[exp.Binary]] = {"&": exp.BitwiseAnd, "|": exp.BitwiseOr, "^": exp.BitwiseXor}
_TERMS: dict[str, type[exp.Binary]] = {"+": exp.Add, "-": exp.Sub, "||": exp.DPipe}
_FACTORS: dict[str, type[exp.Binary]] = {"*": exp.Mul, "/": exp.Div, "%": exp.Mod, "DIV": exp.IntDiv}
_PATTERNS: dict[str, type[exp.Binary]] = {"LIKE": exp.Like, "ILIKE": exp.ILike, "RLIKE": exp.RegexpLike}


def expression(c: Cursor) -> exp.Expression:
    return c.nested(lambda: _or(c))


def _or(c: Cursor) -> exp.Expression:
    left = _and(c)
    while c.accept("OR"):
        left = _binary(exp.Or, left, _and(c))
    return left


def _and(c: Cursor) -> exp.Expression:
    left = _not(c)
    while c.accept("AND"):
        left = _binary(exp.And, left, _not(c))
    return left


def _not(c: Cursor) -> exp.Expression:
    start = c.span()
    if c.take("NOT"):
        operand = c.nested(lambda: _not(c))
        return at(exp.Not(this=operand), c.span_from(start))
    return _predicate(c)


def _predicate(c: Cursor) -> exp.Expression:
    left = _operators(c, _BITWISE, _term)
    while True:
        symbol = c.word()
        if symbol in _COMPARISONS:
            c.advance()
            left = _binary(_COMPARISONS[symbol], left, _operators(c, _BITWISE, _term))
        elif c.accept("IS"):
            left = _is(c, left)
        elif relation := c.accept_any(INTERVAL_RELATIONS):
            right = _operators(c, _BITWISE, _term)
            node = nodes.IntervalRelation(this=left, relation=relation, expression=right)
            left = at(node, span_of(left).to(span_of(right)))
        elif c.looking_at("NOT") and c.word(1) in ("IN", "BETWEEN", *_PATTERNS):
            c.advance()
            inner = _membership(c, left)
            left = at(exp.Not(this=inner), span_of(inner))
        elif c.word() in ("IN", "BETWEEN", *_PATTERNS):
            left = _membership(c, left)
        else:
            for word in ("=", "<", ">", "IN", "BETWEEN", "LIKE"):
                c.note(word)
            return left


def _is(c: Cursor, left: exp.Expression) -> exp.Expression:
    negated = c.accept("NOT")
    right: exp.Expression
    node: exp.Expression
    if c.accept("NULL"):
        node = exp.Is(this=left, expression=exp.Null())
    elif c.accept("TRUE"):
        node = exp.Is(this=left, expression=exp.Boolean(this=True))
    elif c.accept("FALSE"):
        node = exp.Is(this=left, expression=exp.Boolean(this=False))
    elif c.accept("DISTINCT", "FROM"):
        right = _operators(c, _BITWISE, _term)
        # IS NOT DISTINCT FROM is null-safe equality; the plain form is its negation.
        node = exp.NullSafeEQ(this=left, expression=right)
        negated = not negated
    else:
        c.fail()
    node = at(node, c.span_from(span_of(left)))
    return at(exp.Not(this=node), span_of(node)) if negated else node


def _membership(c: Cursor, left: exp.Expression) -> exp.Expression:
    word = c.advance().text.upper()
    node: exp.Expression
    if word == "IN":
        c.expect("(")
        if c.looking_at("SELECT") or c.looking_at("WITH"):
            node = exp.In(this=left, query=exp.Subquery(this=c.nested(lambda: queries.query(c))))
        else:
            node = exp.In(this=left, expressions=c.listing(lambda: expression(c)))
        c.expect(")")
    elif word == "BETWEEN":
        low = _operators(c, _BITWISE, _term)
        c.expect("AND")
        node = exp.Between(this=left, low=low, high=_operators(c, _BITWISE, _term))
    else:
        node = _PATTERNS[word](this=left, expression=_operators(c, _BITWISE, _term))
        if word != "RLIKE" and c.accept("ESCAPE"):
            escape = _string(c)
            node = exp.Escape(this=node, expression=escape)
    return at(node, c.span_from(span_of(left)))


def _operators(
    c: Cursor, table: dict[str, type[exp.Binary]], operand: Callable[[Cursor], exp.Expression]
) -> exp.Expression:
    left = operand(c)
    while c.word() in table:
        left = _binary(table[c.advance().text.upper()], left, operand(c))
    return left


def _term(c: Cursor) -> exp.Expression:
    return _operators(c, _TERMS, _factor)


def _factor(c: Cursor) -> exp.Expression:
    return _operators(c, _FACTORS, _unary)


def _binary(kind: type[exp.Expression], left: exp.Expression, right: exp.Expression) -> exp.Expression:
    return at(kind(this=left, expression=right), span_of(left).to(span_of(right)))


def _unary(c: Cursor) -> exp.Expression:
    start = c.span()
    if c.take("-"):
        operand = c.nested(lambda: _unary(c))
        return at(exp.Neg(this=operand), c.span_from(start))
    if c.take("~"):
        operand = c.nested(lambda: _unary(c))
        return at(exp.BitwiseNot(this=operand), c.span_from(start))
    if c.take("+"):
        return c.nested(lambda: _unary(c))
    return _postfix(c)


def _postfix(c: Cursor) -> exp.Expression:
    node = _primary(c)
    while True:
        if c.take("::"):
            node = at(exp.Cast(this=node, to=type_name(c)), c.span_from(span_of(node)))
        elif not isinstance(node, exp.Column) and c.looking_at(".") and c.at_name(1):
            c.advance()
            field = c.name("a column")
            node = at(exp.Dot(this=node, expression=field), c.span_from(span_of(node)))
        else:
            return node


def _primary(c: Cursor) -> exp.Expression:
    start = c.span()
    token = c.token()
    if token is None:
        c.note("an expression")
        c.fail()
    if token.token_type is TokenType.STRING:
        return _string(c)
    if token.token_type is TokenType.NUMBER or (c.looking_at(".") and _is_number(c, 1)):
        return _number(c)
    if c.take("("):
        return _parenthesis(c, start)
    word = c.word()
    if word in _LITERAL_WORDS:
        c.advance()
        return at(_LITERAL_WORDS[word](), start)
    if word in _SPECIAL_FORMS and (word in ("CASE", "INTERVAL") or c.word(1) == "("):
        c.advance()
        return at(_SPECIAL_FORMS[word](c), c.span_from(start))
    if word in ("DATE", "TIMESTAMP") and _is_string(c, 1):
        c.advance()
        literal = _string(c)
        to = at(nodes.TypeName(this=word), start)
        return at(exp.Cast(this=literal, to=to), c.span_from(start))
    if c.at_name() or (word in _CALLABLE_RESERVED and c.word(1) == "("):
        return _column_or_call(c)
    c.note("an expression")
    hint = f"{word} is a reserved word; write it in double quotes to use it as a name" if word in RESERVED else ""
    c.fail(hint=hint)


_LITERAL_WORDS: dict[str, Callable[[], exp.Expression]] = {
    "NULL": exp.Null,
    "TRUE": lambda: exp.Boolean(this=True),
    "FALSE": lambda: exp.Boolean(this=False),
}
# Reserved words that are Spark functions too: left('abc', 2).
_CALLABLE_RESERVED = ("LEFT", "RIGHT")


def _is_number(c: Cursor, ahead: int) -> bool:
    token = c.token(ahead)
    return token is not None and token.token_type is TokenType.NUMBER


def _is_string(c: Cursor, ahead: int) -> bool:
    token = c.token(ahead)
    return token is not None and token.token_type is TokenType.STRING


def _string(c: Cursor) -> exp.Expression:
    start = c.span()
    text = c.string()
    if text is None:
        c.fail()
    return at(exp.Literal.string(text), start)


def _number(c: Cursor) -> exp.Expression:
    start = c.span()
    text = ""
    if c.accept("."):
        text = "0."
    digits = c.number()
    if digits is None:
        c.fail()
    follower = c.token()
    span = c.span_from(start)
    if follower is not None and follower.token_type is TokenType.VAR and follower.start == span.end:
        raise Mistake(
            f"{c.text[start.start : follower.end + 1]} is neither a number nor a name",
            Span(start.start, follower.end + 1),
            "put a space between a number and its unit" if unit_name(follower.text) else "",
        )
    return at(exp.Literal.number(text + digits), span)


def _parenthesis(c: Cursor, start: Span) -> exp.Expression:
    node: exp.Expression
    if c.looking_at("SELECT") or c.looking_at("WITH"):
        node = exp.Subquery(this=c.nested(lambda: queries.query(c)))
    else:
        node = exp.Paren(this=expression(c))
    c.expect(")")
    return at(node, c.span_from(start))


def _column_or_call(c: Cursor) -> exp.Expression:
    start = c.span()
    if c.word(1) == "(" and c.token() is not None:
        token = c.advance()
        return _call(c, token.text, start)
    first = c.name("a column")
    if c.looking_at(".") and c.at_name(1):
        c.advance()
        second = c.name("a column")
        return at(exp.Column(this=second, table=first), c.span_from(start))
    if c.looking_at(".", "*"):
        c.advance()
        c.advance()
        return at(exp.Column(this=exp.Star(), table=first), c.span_from(start))
    if c.looking_at("."):
        c.advance()
        c.note("a column")
        c.fail()
    return at(exp.Column(this=first), start)


def _call(c: Cursor, name: str, start: Span) -> exp.Expression:
    c.expect("(")
    arguments: list[exp.Expression] = []
    distinct = False
    if c.looking_at("*"):
        star = c.span()
        c.advance()
        arguments = [at(exp.Star(), star)]
    elif not c.looking_at(")"):
        distinct = c.accept("DISTINCT")
        arguments = c.listing(lambda: expression(c))
    c.expect(")")
    call = exp.Anonymous(this=name, expressions=arguments)
    if distinct:
        call.set("distinct", True)
    node: exp.Expression = at(call, c.span_from(start))
    if c.accept("OVER"):
        node = at(windows.over(c, node), c.span_from(start))
    return node


def _cast(c: Cursor, kind: type[exp.Expression]) -> exp.Expression:
    c.expect("(")
    operand = expression(c)
    c.expect("AS")
    if c.looking_at("INTERVAL") and unit_name(c.word(1)):
        start = c.span()
        c.advance()
        unit = unit_name(c.advance().text)
        to = at(nodes.TypeName(this=f"INTERVAL {unit}"), c.span_from(start))
    else:
        to = type_name(c)
    c.expect(")")
    return kind(this=operand, to=to)


def _extract(c: Cursor) -> exp.Expression:
    c.expect("(")
    field = c.name("a field such as YEAR")
    c.expect("FROM")
    operand = expression(c)
    c.expect(")")
    return exp.Extract(this=exp.Var(this=field.name.upper()), expression=operand)


def _case(c: Cursor) -> exp.Expression:
    operand = None if c.looking_at("WHEN") else expression(c)
    branches: list[exp.Expression] = []
    while c.accept("WHEN"):
        condition = expression(c)
        c.expect("THEN")
        branches.append(exp.If(this=condition, true=expression(c)))
    if not branches:
        c.fail()
    default = expression(c) if c.accept("ELSE") else None
    c.expect("END")
    return exp.Case(this=operand, ifs=branches, default=default)


def _exists(c: Cursor) -> exp.Expression:
    c.expect("(")
    inner = c.nested(lambda: queries.query(c))
    c.expect(")")
    return exp.Exists(this=inner)


_SPECIAL_FORMS: dict[str, Callable[[Cursor], exp.Expression]] = {
    "CAST": lambda c: _cast(c, exp.Cast),
    "TRY_CAST": lambda c: _cast(c, exp.TryCast),
    "CASE": _case,
    "EXTRACT": _extract,
    "EXISTS": _exists,
    "INTERVAL": lambda c: windows.interval_literal(c),
}


def type_name(c: Cursor) -> nodes.TypeName:
    """A type as written; the binder knows which types there are."""
    start = c.span()
    if c.accept("INTERVAL"):
        return at(nodes.TypeName(this="INTERVAL"), start)
    name = c.name("a type").name
    if name.upper() == "DOUBLE":
        c.accept("PRECISION")
    parameters: list[exp.Expression] = []
    if c.accept("("):
        parameters = c.listing(lambda: _number(c))
        c.expect(")")
    return at(nodes.TypeName(this=name, expressions=parameters), c.span_from(start))
