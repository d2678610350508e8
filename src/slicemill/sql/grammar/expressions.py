"""Parser of scalar expressions, by precedence from OR down to literals."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from slicemill.sql import nodes
from slicemill.sql.cursor import Cursor, hint_for_reserved
from slicemill.sql.errors import StatementError, TextSpan
from slicemill.sql.grammar import foreign_keywords as foreign
from slicemill.sql.grammar import queries, windows
from slicemill.sql.grammar import windows as over
from slicemill.sql.lexer import RESERVED
from slicemill.sql.nodes import at, span_of
from slicemill.time import unit_name

# Relations between periods (L7): Allen's thirteen relations, then TSQL's less strict relations under other
# names.
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

_RELATION_STARTS = {words.split()[0] for words in INTERVAL_RELATIONS}

_COMPARISONS: dict[str, type[exp.Expression]] = {
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
_PATTERNS: dict[str, type[exp.Expression]] = {"LIKE": exp.Like, "ILIKE": exp.ILike, "RLIKE": exp.RegexpLike}
_MEMBERSHIPS = ("IN", "BETWEEN", *_PATTERNS)
_NESTED, _SINGLE = "there are no lists of lists", "let the elements be single values"

# Maximum number of operands in a chain such as a + b + …, of which each operand adds a level to the syntax
# tree.
_MOST_OPERANDS, _IN_PARTS = 500, "put parts of it in parentheses"

# Binary operators with their precedence. An operator with a higher number binds more tightly.
_OPERATORS: dict[str, tuple[int, type[exp.Expression]]] = {
    "&": (1, exp.BitwiseAnd),
    "|": (1, exp.BitwiseOr),
    "^": (1, exp.BitwiseXor),
    "+": (2, exp.Add),
    "-": (2, exp.Sub),
    "||": (2, exp.DPipe),
    "*": (3, exp.Mul),
    "/": (3, exp.Div),
    "%": (3, exp.Mod),
    "DIV": (3, exp.IntDiv),
}
# Spelling in ESL of operators of other languages.
_FOREIGN_OPERATORS = {"=>": ">=", "=<": "<=", "&&": "AND", "**": "power(x, y)", "//": "DIV"}


def expression(c: Cursor) -> exp.Expression:
    return c.parse_nested(lambda: _or(c))


def _or(c: Cursor) -> exp.Expression:
    operands = [_and(c)]
    while c.accept("OR"):
        operands.append(_and(c))
    return _build_balanced_tree(exp.Or, operands)


def _and(c: Cursor) -> exp.Expression:
    operands = [_not(c)]
    while c.accept("AND"):
        operands.append(_not(c))
    return _build_balanced_tree(exp.And, operands)


def _build_balanced_tree(kind: type[exp.Expression], operands: list[exp.Expression]) -> exp.Expression:
    """Return a balanced syntax tree of all operands of a chain of ANDs or ORs.

    A balanced tree of a thousand operands needs only ten levels of recursion.
    """
    if len(operands) == 1:
        return operands[0]
    middle = (len(operands) + 1) // 2
    return _binary(
        kind, _build_balanced_tree(kind, operands[:middle]), _build_balanced_tree(kind, operands[middle:])
    )


def _not(c: Cursor) -> exp.Expression:
    starts: list[TextSpan] = []
    while c.looking_at("NOT"):
        c.check_depth(len(starts) + 1)
        starts.append(c.span())
        c.advance()
    node = _predicate(c)
    for start in reversed(starts):
        node = at(exp.Not(this=node), c.span_from(start))
    return node


def _predicate(c: Cursor) -> exp.Expression:
    """Parse an operand, or a single comparison of two operands.

    Comparisons do not chain: `1 < x < 5` is an error.
    """
    left = _operators(c)
    if c.looking_at("NOT", "NULL"):
        c.fail("write IS NOT NULL")
    if not _at_comparison(c):
        c.note("an operator")
        return left
    node = _comparison(c, left)
    if _at_comparison(c):
        raise StatementError(
            "comparisons do not chain", c.span(), "join two with AND, or put the first one in parentheses"
        )
    return node


def _at_comparison(c: Cursor) -> bool:
    word = c.word()
    if word == "NOT":
        return c.word(1) in _MEMBERSHIPS
    return word in _COMPARISONS or word == "IS" or word in _MEMBERSHIPS or _relation(c) != ""


def _relation(c: Cursor) -> str:
    """Return the relation of periods at the cursor, such as OVERLAPS, or ''."""
    if c.word() not in _RELATION_STARTS:
        return ""
    return next((words for words in INTERVAL_RELATIONS if c.looking_at(*words.split())), "")


def _comparison(c: Cursor, left: exp.Expression) -> exp.Expression:
    if c.take("IS"):
        return _is(c, left)
    if c.take("NOT"):
        inner = _membership(c, left)
        return at(exp.Not(this=inner), span_of(inner))
    if c.word() in _MEMBERSHIPS:
        return _membership(c, left)
    if relation := _relation(c):
        c.expect(*relation.split())
        right = _operators(c)
        node = nodes.IntervalRelation(this=left, relation=relation, expression=right)
        return at(node, span_of(left).to(span_of(right)))
    _reject_foreign_operator(c)
    kind = _COMPARISONS[c.advance().text]
    if c.word() in ("ANY", "SOME", "ALL") and c.word(1) == "(":
        return _quantifier(c, left, kind)
    return _binary(kind, left, _operators(c))


def _quantifier(c: Cursor, left: exp.Expression, kind: type[exp.Expression]) -> exp.Expression:
    """Parse `x = ANY(list)` and `x <> ALL(list)`.

    The results are `array_contains(list, x)` and its negation.
    """
    start = c.span()
    word = c.advance().text.upper()
    if kind is not (exp.NEQ if word == "ALL" else exp.EQ):
        raise StatementError(
            f"{word} compares with {'<>' if word == 'ALL' else '='} only",
            start,
            "compare with each value: x > 1 OR x > 2",
        )
    c.expect("(")
    if c.word() in ("SELECT", "WITH"):
        node: exp.Expression = exp.In(
            this=left, query=exp.Subquery(this=c.parse_nested(lambda: queries.query(c)))
        )
    else:
        values = expression(c)
        literal = isinstance(values, exp.Anonymous) and values.name.lower() == "array"
        node = (
            exp.In(this=left, expressions=values.expressions)
            if literal
            else exp.Anonymous(this="array_contains", expressions=[values, left])
        )
    c.expect(")")
    node = at(node, c.span_from(span_of(left)))
    return at(exp.Not(this=node), span_of(node)) if word == "ALL" else node


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
        right = _operators(c)
        # IS NOT DISTINCT FROM is null-safe equality, and IS DISTINCT FROM is its negation.
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
        if c.word() in ("SELECT", "WITH"):
            node = exp.In(this=left, query=exp.Subquery(this=c.parse_nested(lambda: queries.query(c))))
        else:
            node = exp.In(this=left, expressions=c.listing(lambda: expression(c)))
        c.expect(")")
    elif word == "BETWEEN":
        low = _operators(c)
        c.expect("AND")
        node = exp.Between(this=left, low=low, high=_operators(c))
    else:
        node = _PATTERNS[word](this=left, expression=_operators(c))
        if word != "RLIKE" and c.accept("ESCAPE"):
            escape = _string(c)
            node = exp.Escape(this=node, expression=escape)
    return at(node, c.span_from(span_of(left)))


def _operators(c: Cursor, weakest: int = 1) -> exp.Expression:
    """Parse operands and operators with a precedence of at least `weakest`."""
    left, operands = _unary(c), 1
    while c.word() in _OPERATORS:
        _reject_foreign_operator(c)
        strength, kind = _OPERATORS[c.word()]
        if strength < weakest:
            break
        if operands == _MOST_OPERANDS:
            raise StatementError(
                f"more than {_MOST_OPERANDS} operands follow each other", c.span(), _IN_PARTS
            )
        c.advance()
        left, operands = _binary(kind, left, _operators(c, strength + 1)), operands + 1
    return left


def _reject_foreign_operator(c: Cursor) -> None:
    spelling = c.word() + c.word(1)
    if spelling in _FOREIGN_OPERATORS:
        ours = _FOREIGN_OPERATORS[spelling]
        start = c.span()
        c.advance()
        raise StatementError(f"there is no operator {spelling}", start.to(c.span()), f"write {ours}")


def _binary(kind: type[exp.Expression], left: exp.Expression, right: exp.Expression) -> exp.Expression:
    return at(kind(this=left, expression=right), span_of(left).to(span_of(right)))


_SIGNS: dict[str, type[exp.Expression]] = {"-": exp.Neg, "~": exp.BitwiseNot}


def _unary(c: Cursor) -> exp.Expression:
    signs: list[tuple[str, TextSpan]] = []
    while c.word() in ("-", "~", "+"):
        c.check_depth(len(signs) + 1)
        signs.append((c.word(), c.span()))
        c.advance()
    node = _postfix(c)
    for sign, start in reversed(signs):
        if sign in _SIGNS:
            node = at(_SIGNS[sign](this=node), c.span_from(start))
    return node


def _postfix(c: Cursor) -> exp.Expression:
    node = _primary(c)
    while True:
        if c.take("::"):
            # A cast is printed as CAST( … ), which nests one level deeper than `::`.
            c.check_depth(nodes.height(node) + 1)
            node = at(exp.Cast(this=node, to=type_name(c)), c.span_from(span_of(node)))
        elif isinstance(node, exp.Anonymous | nodes.Over) and c.take("."):
            field = c.name("a column", RESERVED - {"END"})  # window(ts, '1 minute').end
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
    if token.token_type is TokenType.NUMBER or c.looking_at("."):
        return _number(c)
    if c.take("("):
        return _parenthesis(c, start)
    word = c.word()
    if word in _LITERAL_WORDS:
        c.advance()
        return at(_LITERAL_WORDS[word](), start)
    if word in _SPECIAL_FORMS and (word in RESERVED or c.word(1) == "("):
        c.advance()
        return at(_SPECIAL_FORMS[word](c), c.span_from(start))
    if c.looking_at("ARRAY", "["):
        return _list(c, start)
    if word in ("DATE", "TIMESTAMP") and _is_string(c, 1):
        c.advance()
        literal = c.parse_nested(lambda: _string(c))
        to = at(nodes.TypeName(this=word), start)
        return at(exp.Cast(this=literal, to=to), c.span_from(start))
    if c.at_name() or (word in _CALLABLE_RESERVED and c.word(1) == "("):
        return _column_or_call(c)
    c.note("an expression")
    return c.fail(hint_for_reserved(word))


_LITERAL_WORDS: dict[str, Callable[[], exp.Expression]] = {
    "NULL": exp.Null,
    "TRUE": lambda: exp.Boolean(this=True),
    "FALSE": lambda: exp.Boolean(this=False),
}
# Reserved words that are also functions: left('abc', 2), END(VALID(s)).
_CALLABLE_RESERVED = ("END", "LEFT", "RIGHT")


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
    fraction = c.take(".")
    text = c.number()
    if text is None:
        c.fail()
    follower = c.token()
    span = c.span_from(start)
    if follower is not None and follower.token_type is TokenType.VAR and follower.start == span.end:
        raise StatementError(
            f"{c.text[start.start : follower.end + 1]} is neither a number nor a name",
            TextSpan(start.start, follower.end + 1),
            "put a space between a number and its unit" if unit_name(follower.text) else "",
        )
    if fraction and "." in text:
        raise StatementError(f".{text} is no number", span)
    return at(exp.Literal.number(f"0.{text}" if fraction else text), span)


def _list(c: Cursor, start: TextSpan) -> exp.Expression:
    """Parse the elements of a list such as `ARRAY[1, 2]`."""
    c.expect("ARRAY", "[")
    elements = c.listing(lambda: expression(c))
    c.expect("]")
    return at(exp.Anonymous(this="array", expressions=elements), c.span_from(start))


def _parenthesis(c: Cursor, start: TextSpan) -> exp.Expression:
    node: exp.Expression
    if c.word() in ("SELECT", "WITH"):
        node = exp.Subquery(this=c.parse_nested(lambda: queries.query(c)))
    else:
        node = exp.Paren(this=expression(c))
    c.expect(")")
    return at(node, c.span_from(start))


def _column_or_call(c: Cursor) -> exp.Expression:
    start = c.span()
    if c.word(1) == "(":
        token = c.advance()
        quoted = token.token_type is TokenType.IDENTIFIER
        return _call(c, exp.Identifier(this=token.text, quoted=True) if quoted else token.text, start)
    first = c.name("a column")
    if not c.take("."):
        return at(exp.Column(this=first), start)
    # After a dot, the word END is a column, as in Spark's window.end.
    second = exp.Star() if c.take("*") else c.name("a column", RESERVED - {"END"})
    if c.looking_at("."):
        raise StatementError(
            "a column has one dot at most", c.span(), "write stream.column, or the column alone"
        )
    return at(exp.Column(this=second, table=first), c.span_from(start))


def _call(c: Cursor, name: str | exp.Identifier, start: TextSpan) -> exp.Expression:
    c.expect("(")
    arguments: list[exp.Expression] = []
    distinct = False
    star = c.span()
    if c.take("*"):
        arguments = [at(exp.Star(), star)]
    elif not c.looking_at(")"):
        distinct = c.take("DISTINCT")
        arguments = c.listing(lambda: expression(c))
        if c.looking_at("ORDER", "BY"):
            foreign.refuse(c, foreign.IN_A_CALL)
    c.expect(")")
    if c.looking_at("WITHIN", "GROUP") or (c.word() in ("IGNORE", "RESPECT") and c.word(1) == "NULLS"):
        foreign.refuse(c, foreign.IN_A_CALL)
    call = exp.Anonymous(this=name, expressions=arguments)
    if distinct:
        call.set("distinct", True)
    if c.looking_at("FILTER", "("):
        c.expect("FILTER", "(")
        c.expect("WHERE")
        call.set("filter", expression(c))
        c.expect(")")
    node: exp.Expression = at(call, c.span_from(start))
    if c.take("OVER"):
        node = at(over.over(c, node), c.span_from(start))
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
    field = c.plain_word("a field such as YEAR")
    c.expect("FROM")
    operand = expression(c)
    c.expect(")")
    return exp.Extract(this=exp.Var(this=field), expression=operand)


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
    inner = c.parse_nested(lambda: queries.query(c))
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
    """Parse a type name.

    The binder checks whether the type exists.
    """
    start = c.span()
    if c.take("INTERVAL"):
        return at(nodes.TypeName(this="INTERVAL"), start)
    name = c.plain_word("a type")
    if name == "ARRAY" and c.take("<"):
        element = type_name(c)
        c.expect(">")
        if element.args.get("list"):
            raise StatementError(_NESTED, c.span_from(start), _SINGLE)
        element.set("list", True)
        return at(element, c.span_from(start))
    if name == "DOUBLE":
        c.take("PRECISION")
    parameters: list[exp.Literal] = []
    if c.take("("):
        parameters = c.listing(c.count)
        c.expect(")")
    node = nodes.TypeName(this=name, expressions=parameters)
    if c.take("["):
        c.expect("]")
        node.set("list", True)
    elif c.take("ARRAY"):
        node.set("list", True)
    if c.word() in ("[", "ARRAY"):
        raise StatementError(_NESTED, c.span_from(start), _SINGLE)
    return at(node, c.span_from(start))


def sort_key(c: Cursor) -> exp.Expression:
    """Parse `expression [ASC | DESC] [NULLS FIRST | LAST]`."""
    node = expression(c)
    descending = c.accept("DESC")
    if not descending:
        c.take("ASC")
    nulls_first = None
    if c.take("NULLS"):
        nulls_first = c.accept("FIRST")
        if not nulls_first:
            c.expect("LAST")
    written = exp.Ordered(this=node, desc=descending, nulls_first=nulls_first)
    return at(written, c.span_from(span_of(node)))
