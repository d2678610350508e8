"""Random aggregates: their text, from a grammar of tables, statements and expressions."""

from __future__ import annotations

from hypothesis import strategies as st

# Columns of the rows in scope by type, as expressions write them.
Scope = dict[str, list[str]]

ARGUMENTS: Scope = {"int": ["x"], "real": ["y"], "text": ["z"]}
LITERALS = {
    "int": ["0", "1", "2", "-3", "CAST(NULL AS int)"],
    "real": ["0.5", "2.0", "-1.5", "CAST(NULL AS real)"],
    "text": ["'a'", "'b'", "CAST(NULL AS varchar)"],
}
TYPES = tuple(LITERALS)


def columns(prefix: str) -> Scope:
    return {"int": [f"{prefix}a"], "real": [f"{prefix}b"], "text": [f"{prefix}c"]}


def joined(*scopes: Scope) -> Scope:
    return {type_: [name for scope in scopes for name in scope.get(type_, [])] for type_ in TYPES}


class Grammar:
    """Draw the parts of one aggregate."""

    def __init__(self, draw: st.DrawFn, window: bool) -> None:
        self._draw = draw
        self._window = window
        self._aliases = 0

    def _one(self, *choices: str) -> str:
        return self._draw(st.sampled_from(choices))

    def expression(self, type_: str, scope: Scope, depth: int) -> str:
        atoms = [*scope[type_], *scope[type_], *LITERALS[type_]]
        if depth == 0 or self._draw(st.booleans()):
            return self._one(*atoms)
        inner = [self.expression(type_, scope, depth - 1) for _ in range(2)]
        condition = self.condition(scope, depth - 1)
        forms = [
            f"CASE WHEN {condition} THEN {inner[0]} ELSE {inner[1]} END",
            f"coalesce({inner[0]}, {inner[1]})",
        ]
        if type_ != "text":
            forms += [f"({inner[0]} {sign} {inner[1]})" for sign in ("+", "-", "*")]
            forms += [
                f"greatest({inner[0]}, {inner[1]})",
                f"nullif({inner[0]}, {inner[1]})",
                f"abs({inner[0]})",
            ]
        if type_ == "real":
            forms += [f"({inner[0]} / {inner[1]})"]
        if type_ == "int":
            forms += [f"({inner[0]} % {inner[1]})", self.total(scope, depth - 1)]
        if self._window and depth > 1:
            forms.append({"int": "oldest().wa", "real": "oldest().wb", "text": "oldest().wc"}[type_])
        return self._one(*forms)

    def total(self, scope: Scope, depth: int) -> str:
        name, inner = self.source()
        where = self.condition(joined(scope, inner), depth - 1) if depth > 1 else "TRUE"
        what = self._one(
            "count(*)", *(f"{f}({inner['int'][0]})" for f in ("sum", "min", "max", "count", "last"))
        )
        return f"CAST((SELECT {what} FROM {name} WHERE {where}) AS int)"

    def condition(self, scope: Scope, depth: int) -> str:
        type_ = self._one(*TYPES)
        operators = ("=", "<>", "<=>") if type_ == "text" else ("=", "<>", "<", ">=", "<=>")
        left, right = (self.expression(type_, scope, max(depth - 1, 0)) for _ in range(2))
        plain = f"{left} {self._one(*operators)} {right}"
        if depth <= 0:
            return self._one(plain, f"{left} IS NULL", f"{left} IN ({right}, {LITERALS[type_][0]})")
        name, inner = self.source()
        inside = self.condition(joined(scope, inner), depth - 1)
        other = self.condition(scope, depth - 1)
        exists = f"EXISTS (SELECT {inner['int'][0]} FROM {name} WHERE {inside})"
        return self._one(plain, f"({plain} AND {other})", f"({plain} OR {other})", f"NOT ({other})", exists)

    def source(self) -> tuple[str, Scope]:
        """Draw a table in FROM with its own alias, and its columns."""
        table = self._one("one", "many", *(["inwindow"] if self._window else []))
        self._aliases += 1
        alias = f"t{self._aliases}"
        return f"{table} AS {alias}", columns(f"{alias}.w" if table == "inwindow" else f"{alias}.")

    def values(self, scope: Scope, depth: int = 2) -> str:
        return ", ".join(self.expression(type_, scope, depth) for type_ in TYPES)

    def statement(self, loops: bool = True) -> str:
        table = self._one("one", "many", "many")
        own = joined(ARGUMENTS, columns(f"{table}."))
        kinds = ["insert", "select", "update", "update", "delete", "return", "return", "give"]
        kind = self._one(*kinds, *(["while"] if loops else []))
        if kind == "while":
            inner = " ".join(self.statement(self._one("", "again") != "") for _ in range(2))
            begin = "DELETE FROM turn; INSERT INTO turn VALUES (0);"
            going_on = f"EXISTS (SELECT n FROM turn WHERE n < 3) AND {self.condition(ARGUMENTS, 2)}"
            return f"{begin} WHILE {going_on} {{ UPDATE turn SET n = n + 1; {inner} }}"
        if kind == "insert":
            where = f" WHERE {self.condition(ARGUMENTS, 1)}" if self._draw(st.booleans()) else ""
            return f"INSERT INTO many VALUES ({self.values(ARGUMENTS)}){where};"
        if kind == "select":
            name, inner = self.source()
            where = self.condition(joined(ARGUMENTS, inner), 1)
            items = self.values(joined(ARGUMENTS, inner), 1)
            return f"INSERT INTO many SELECT {items} FROM {name} WHERE {where} LIMIT 2;"
        if kind == "update":
            changes = f"a = {self.expression('int', own, 2)}, b = {self.expression('real', own, 2)}"
            return f"UPDATE {table} SET {changes} WHERE {self.condition(own, 1)};"
        if kind == "delete":
            target = self._one(table, *(["inwindow"] if self._window else []))
            scope = joined(ARGUMENTS, columns("inwindow.w" if target == "inwindow" else f"{target}."))
            return f"DELETE FROM {target} WHERE {self.condition(scope, 1)};"
        if kind == "give":
            return f"INSERT INTO RETURN VALUES ({self.values(ARGUMENTS)});"
        name, inner = self.source()
        scope = joined(ARGUMENTS, inner)
        order = self._one(
            "", f" ORDER BY {inner['int'][0]} DESC, {inner['real'][0]}", f" ORDER BY {inner['real'][0]}"
        )
        limit = self._one("", " LIMIT 2") if order else ""
        items, where = self.values(scope, 1), self.condition(scope, 1)
        return f"INSERT INTO RETURN SELECT {items} FROM {name} WHERE {where}{order}{limit};"

    def body(self) -> str:
        return " ".join(self.statement() for _ in range(self._draw(st.integers(0, 3))))


@st.composite
def aggregates(draw: st.DrawFn, window: bool) -> str:
    """Draw CREATE AGGREGATE f(x int, y real, z varchar), which returns an int, a real and a text."""
    grammar = Grammar(draw, window)
    tables = "TABLE one(a int, b real, c varchar); TABLE many(a int, b real, c varchar); TABLE turn(n int);"
    first = f"INSERT INTO one VALUES ({grammar.values(ARGUMENTS, 1)});" if draw(st.booleans()) else ""
    parts = [f"INITIALIZE: {{ {first} {grammar.body()} }}", f"ITERATE: {{ {grammar.body()} }}"]
    if window:
        tables += " TABLE inwindow(wa int, wb real, wc varchar);"
        parts.append(f"EXPIRE: {{ {grammar.body()} }}")
    else:
        ends = [f"INSERT INTO RETURN SELECT a, b, c FROM {table};" for table in ("one", "many")]
        parts.append(f"TERMINATE: {{ {draw(st.sampled_from(['', *ends]))} }}")
    kind = "WINDOW AGGREGATE" if window else "AGGREGATE"
    returns = "(ra int, rb real, rc varchar)"
    return f"CREATE {kind} f(x int, y real, z varchar) : {returns} {{ {tables} {' '.join(parts)} }};"
