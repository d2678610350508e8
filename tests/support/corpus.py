"""Reads the corpus (tests/corpus/README.md tells the format) and compares what an engine gives with it.

`read_case` reads one file as it is written. `prepare` binds its ESL and gives every value the type of its
column: that is what an engine runs. `check_rows` compares.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from math import isclose, isnan
from pathlib import Path
from typing import TypeAlias

import pytest
from _pytest.mark import ParameterSet

from slicemill.binder import bind
from slicemill.binder.expressions import parse_date, parse_timestamp
from slicemill.catalog.catalog import Catalog, Stream, Table, TimestampKind
from slicemill.sql.errors import SourceText
from slicemill.types import Kind, Schema, Type

CORPUS = Path(__file__).parents[1] / "corpus"

# What a case needs from an engine; README.md says what each tag covers.
TAGS = frozenset(
    {"base", "uda", "windows", "slide", "active", "union", "join", "table", "view", "adhoc", "relation"}
    | {"temporal", "late", "errors", "changes", "changelog"}
)

Value: TypeAlias = bool | int | float | Decimal | str | tuple[object, ...] | None
Row: TypeAlias = tuple[object, ...]
TimedRow: TypeAlias = tuple[int | None, Row]


class CorpusError(Exception):
    """A .test file that does not follow the format; the message begins with file and line."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as written: a number, 'text', NULL, TRUE, FALSE, a period [begin, end), or a list {a, b}."""

    kind: str
    text: str
    bounds: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """One line of a section: the time in front (None for `-` or in a table), then the values."""

    line: int
    at_us: int | None
    values: tuple[Literal, ...]
    stream: str = ""
    punctuation: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    line: int
    rows: tuple[WrittenRow, ...]
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedError:
    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True)
class Case:
    """One .test file as written."""

    path: Path
    about: str
    spec: tuple[str, ...]
    needs: frozenset[str]
    esl: str
    arrivals: Section
    tables: Mapping[str, Section]
    rows: Mapping[str, Section]
    errors: tuple[ExpectedError, ...] = ()
    warnings: tuple[ExpectedError, ...] = ()
    changes: tuple[tuple[int, str, Section], ...] = ()  # when, and which table

    @property
    def name(self) -> str:
        inside = self.path.is_relative_to(CORPUS)
        return self.path.relative_to(CORPUS).with_suffix("").as_posix() if inside else self.path.stem

    @property
    def source(self) -> SourceText:
        return SourceText(self.esl, self.name)


@dataclass(frozen=True, slots=True)
class Event:
    """What reaches a stream: a tuple, or (row None) a punctuation: no later tuple is earlier than `ts_us`.

    `ts_us` is None for a tuple of an external stream whose timestamp is NULL.
    """

    arrival_us: int
    stream: str
    ts_us: int | None
    row: Row | None


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """Rows with their timestamps; rows of an ad hoc query have none. `ordered`: exactly in this order."""

    rows: tuple[TimedRow, ...]
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a table holds for the tuples that arrive from a time on."""

    at_us: int
    table: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Runnable:
    """A case as an engine runs it; all values have the types of their columns.

    TIMESTAMP and INTERVAL are microseconds, DATE is days since 1970, PERIOD is (begin, end) in microseconds.
    """

    case: Case
    catalog: Catalog
    events: tuple[Event, ...]
    tables: Mapping[str, tuple[Row, ...]]
    expected: Mapping[str, ExpectedRows]
    changes: tuple[TableChange, ...] = ()


# -- reading ----------------------------------------------------------------------------------------------


def case_paths() -> list[Path]:
    return sorted(CORPUS.rglob("*.test"))


def read_cases() -> list[Case]:
    return [read_case(path) for path in case_paths()]


def parameters(beyond: Collection[str] = ()) -> list[ParameterSet]:
    """Every case that is no file of mistakes, for pytest's parametrize.

    `share_beyond` are tags of cases that a layer under test has no part in; whole engines run all of them.
    """
    return [
        pytest.param(case, id=case.name)
        for case in read_cases()
        if not case.errors and case.needs.isdisjoint(beyond)
    ]


def read_case(path: Path) -> Case:
    return _Reader(path, path.read_text(encoding="utf-8").splitlines()).case()


_HEADING = re.compile(
    r"== *(?P<word>\w+)(?: +(?P<name>\w+(?: into \w+)?))?(?: +(?P<ordered>ordered)| +at +(?P<at>[\d.]+))?$"
)
_ARRIVAL = re.compile(r"(?P<stream>\w+)(?P<colon>:| +punctuation *(?:#.*)?$)")
_MISTAKE = re.compile(r"(\d+):(\d+) +(\S.*)")
_VALUE = re.compile(
    r"(?P<null>NULL)\b|(?P<boolean>TRUE|FALSE)\b|'(?P<text>(?:[^']|'')*)'"
    r"|(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])"
    r"|(?P<nonfinite>NaN|[+-]?Infinity)\b",
    re.IGNORECASE,
)


@dataclass
class _Reader:
    path: Path
    lines: Sequence[str]
    headers: dict[str, list[str]] = field(default_factory=dict)

    def fail(self, line: int, problem: str) -> CorpusError:
        return CorpusError(f"{self.path}:{line}: {problem}")

    def case(self) -> Case:
        starts = [number for number, line in enumerate(self.lines, 1) if line.startswith("==")]
        about = self._header(starts[0] if starts else len(self.lines) + 1)
        found: dict[tuple[str, str], tuple[int, bool]] = {}
        later: list[tuple[int, str, int]] = []
        for number in starts:
            word, name, ordered, at_us = self._heading(number)
            if at_us is not None:
                later.append((at_us, name, number))
                continue
            if (word, name) in found:
                raise self.fail(number, f"== {word} {name}".strip() + " is given twice")
            found[word, name] = number, ordered
        if ("esl", "") not in found:
            raise self.fail(1, "there is no == esl")
        body = dict(zip(starts, [*starts[1:], len(self.lines) + 1], strict=True))
        sections: dict[tuple[str, str], Section] = {}
        told: dict[str, tuple[ExpectedError, ...]] = {"errors": (), "warnings": ()}
        for (word, name), (start, ordered) in found.items():
            if word in told:
                told[word] = tuple(self._errors(start, body[start]))
            elif word != "esl":
                read = {"input": self._arrivals, "table": self._plain_rows, "rows": self._timed_rows}[word]
                sections[word, name] = Section(start, tuple(read(start, body[start])), ordered)
        esl_at = found["esl", ""][0]
        self._check_whole(found, told["errors"])
        return Case(
            path=self.path,
            about=about,
            spec=tuple(self.headers.get("spec", ())),
            needs=frozenset(self.headers["needs"]),
            esl="\n".join(self.lines[esl_at : body[esl_at] - 1]).rstrip() + "\n",
            arrivals=sections.get(("input", ""), Section(esl_at, ())),
            tables={name: section for (word, name), section in sections.items() if word == "table"},
            rows={name: section for (word, name), section in sections.items() if word == "rows"},
            errors=told["errors"],
            warnings=told["warnings"],
            changes=tuple(
                (at_us, name, Section(start, tuple(self._plain_rows(start, body[start]))))
                for at_us, name, start in sorted(later)
            ),
        )

    def _header(self, end: int) -> str:
        about: list[str] = []
        for number, line in enumerate(self.lines[: end - 1], 1):
            key, colon, rest = line.partition(":")
            if line.startswith("#"):
                about.append(line.lstrip("# "))
            elif colon and key in ("spec", "needs") and key not in self.headers:
                self.headers[key] = rest.split()
            elif line.strip():
                raise self.fail(number, "a file begins with # what it shows, then spec: and needs:")
        if not about:
            raise self.fail(1, "the first line says, behind #, what the file shows")
        needs = self.headers.get("needs")
        if not needs:
            raise self.fail(1, "needs: names the features, as in needs: base")
        for tag in needs:
            if tag not in TAGS:
                raise self.fail(1, f"there is no tag {tag}; there are {', '.join(sorted(TAGS))}")
        return " ".join(about)

    def _heading(self, number: int) -> tuple[str, str, bool, int | None]:
        match = _HEADING.match(self.lines[number - 1].rstrip())
        word = match["word"] if match else ""
        if match is None or word not in ("esl", "input", "table", "rows", "errors", "warnings"):
            sections = "esl, input, table NAME, rows QUERY [ordered], errors or warnings"
            raise self.fail(number, f"a section is == {sections}")
        named = match["name"] is not None
        if named != (word in ("table", "rows")) or (match["ordered"] and word != "rows"):
            raise self.fail(number, "write == table NAME, == rows QUERY or == rows QUERY ordered")
        at_us = None if match["at"] is None else _microseconds(Literal("number", match["at"]))
        if at_us is not None and (word != "table" or "changes" not in self.headers["needs"]):
            raise self.fail(number, "== table NAME at TIME is for tables, and needs: changes")
        return word, match["name"] or "", bool(match["ordered"]), at_us

    def _check_whole(self, found: Mapping[tuple[str, str], object], errors: Sequence[ExpectedError]) -> None:
        words = {word for word, _ in found}
        if ("errors" in words) != ("errors" in self.headers["needs"]):
            raise self.fail(1, "== errors and the tag errors go together")
        if "errors" in words and (not errors or words & {"input", "rows", "table"}):
            raise self.fail(1, "a file of mistakes has == esl and == errors with a mistake, and no rows")
        if "errors" not in words and "rows" not in words:
            raise self.fail(1, "there is neither == rows nor == errors")

    def _contents(self, start: int, end: int) -> Iterator[tuple[int, str]]:
        for number in range(start + 1, end):
            text = self.lines[number - 1].strip()
            if text and not text.startswith("#"):
                yield number, text

    def _errors(self, start: int, end: int) -> Iterator[ExpectedError]:
        for number, text in self._contents(start, end):
            match = _MISTAKE.fullmatch(text)
            if match is None:
                raise self.fail(number, "a mistake is line:column and a part of its message")
            yield ExpectedError(int(match[1]), int(match[2]), match[3])

    def _arrivals(self, start: int, end: int) -> Iterator[WrittenRow]:
        last_us, ended = 0, False
        for number, text in self._contents(start, end):
            if ended:
                raise self.fail(number, "nothing comes after end")
            if text == "end":
                ended = True
                continue
            at_us, rest = self._time(number, text)
            match = _ARRIVAL.match(rest)
            if at_us is None or match is None:
                raise self.fail(
                    number, "an arrival is `time stream: values`, `time stream punctuation` or `end`"
                )
            if at_us < last_us:
                raise self.fail(number, "arrivals are written in order of time")
            last_us = at_us
            if match["colon"] == ":":
                values = self._values(number, rest[match.end() :])
                yield WrittenRow(number, at_us, values, match["stream"])
            else:
                yield WrittenRow(number, at_us, (), match["stream"], punctuation=True)

    def _plain_rows(self, start: int, end: int) -> Iterator[WrittenRow]:
        for number, text in self._contents(start, end):
            yield WrittenRow(number, None, self._values(number, text))

    def _timed_rows(self, start: int, end: int) -> Iterator[WrittenRow]:
        for number, text in self._contents(start, end):
            at_us, rest = self._time(number, text)
            yield WrittenRow(number, at_us, self._values(number, rest))

    def _time(self, number: int, text: str) -> tuple[int | None, str]:
        """The time in front of a line in microseconds (None for `-`), and what follows it."""
        if text.startswith("- "):
            return None, text[1:].strip()
        literal, rest = self._literal(number, text)
        at_us = _microseconds(literal)
        if at_us is None:
            raise self.fail(number, "the first field is a time: seconds, or '2026-01-31 12:00:00'")
        return at_us, rest.strip()

    def _values(self, number: int, text: str) -> tuple[Literal, ...]:
        values: list[Literal] = []
        rest = text.strip()
        while True:
            value, rest = self._value(number, rest)
            values.append(value)
            rest = rest.lstrip()
            if not rest or rest.startswith("#"):
                return tuple(values)
            if not rest.startswith(","):
                raise self.fail(number, f"a comma belongs before {rest}")
            rest = rest[1:].lstrip()

    def _value(self, number: int, text: str) -> tuple[Literal, str]:
        if text.startswith("{"):
            elements: list[Literal] = []
            rest = text[1:].lstrip()
            while not rest.startswith("}"):
                element, rest = self._literal(number, rest)
                elements.append(element)
                rest = rest.lstrip().removeprefix(",").lstrip()
            return Literal("list", text, tuple(elements)), rest[1:]
        if not text.startswith("["):
            return self._literal(number, text)
        begin, rest = self._literal(number, text[1:].lstrip())
        if not rest.lstrip().startswith(","):
            raise self.fail(number, "a period is written [begin, end)")
        end, rest = self._literal(number, rest.lstrip()[1:].lstrip())
        if not rest.lstrip().startswith(")"):
            raise self.fail(number, "a period is written [begin, end)")
        return Literal("period", text, (begin, end)), rest.lstrip()[1:]

    def _literal(self, number: int, text: str) -> tuple[Literal, str]:
        match = _VALUE.match(text)
        if match is None:
            raise self.fail(number, f"there is no value in: {text or 'an empty place'}")
        kind = match.lastgroup or ""
        inner = match[kind].replace("''", "'") if kind == "text" else match[kind].upper()
        return Literal(kind, inner), text[match.end() :]


def _microseconds(literal: Literal) -> int | None:
    if literal.kind == "text":
        return parse_timestamp(literal.text)
    if literal.kind != "number":
        return None
    exact = Decimal(literal.text) * 1_000_000
    return int(exact) if exact == int(exact) else None


# -- typing -----------------------------------------------------------------------------------------------


def prepare(case: Case) -> Runnable:
    """Bind the case's ESL (EslError if it has mistakes) and type its rows."""
    catalog = bind(case.source).catalog
    return Runnable(
        case=case,
        catalog=catalog,
        events=tuple(_event(case, catalog, written) for written in case.arrivals.rows),
        tables={name: _table(case, catalog, name, section) for name, section in case.tables.items()},
        expected={name: _expected(case, catalog, name, section) for name, section in case.rows.items()},
        changes=tuple(
            TableChange(at_us, name, _table(case, catalog, name, section))
            for at_us, name, section in case.changes
        ),
    )


def _fail(case: Case, line: int, problem: str) -> CorpusError:
    return CorpusError(f"{case.path}:{line}: {problem}")


def _event(case: Case, catalog: Catalog, written: WrittenRow) -> Event:
    stream = catalog.relation(written.stream)
    assert written.at_us is not None
    if not isinstance(stream, Stream):
        raise _fail(case, written.line, f"{written.stream} is no stream that takes tuples")
    if written.punctuation:
        return Event(written.at_us, stream.name, written.at_us, None)
    values = written.values
    if stream.kind is TimestampKind.INTERNAL and stream.time_column is not None:
        # The system fills this column, so the file leaves it out.
        place = stream.schema.index(stream.time_column)
        clock = Literal("number", str(Decimal(written.at_us) / 1_000_000))
        values = (*values[:place], clock, *values[place:])
    row = _typed_row(case, written.line, values, stream.schema)
    ts_us: int | None = written.at_us
    if stream.kind is TimestampKind.EXTERNAL:
        assert stream.time_column is not None
        stamp = row[stream.schema.index(stream.time_column)]
        assert stamp is None or isinstance(stamp, int)
        ts_us = stamp
    return Event(written.at_us, stream.name, ts_us, row)


def sent_row(stream: Stream, row: Row) -> Row:
    """Return the values that a source sends. The system fills a `current_time` column."""
    return tuple(
        value for column, value in zip(stream.schema, row, strict=True) if column.name != stream.stamp_column
    )


def _table(case: Case, catalog: Catalog, name: str, section: Section) -> tuple[Row, ...]:
    table = catalog.relation(name)
    if not isinstance(table, Table):
        raise _fail(case, section.line, f"{name} is not declared with CREATE TABLE")
    return tuple(_typed_row(case, row.line, row.values, table.schema) for row in section.rows)


def _expected(case: Case, catalog: Catalog, name: str, section: Section) -> ExpectedRows:
    query = catalog.queries.get(name.lower())
    if query is None:
        raise _fail(case, section.line, f"there is no query {name}")
    rows: list[TimedRow] = []
    for written in section.rows:
        if (written.at_us is not None) != query.continuous:
            rule = "begins with its time" if query.continuous else "begins with -, as the query is ad hoc"
            raise _fail(case, written.line, f"a row of {name} {rule}")
        rows.append((written.at_us, _typed_row(case, written.line, written.values, query.schema)))
    if query.continuous and rows != sorted(rows, key=lambda row: row[0] or 0):
        raise _fail(case, section.line, "results come in order of time")
    return ExpectedRows(tuple(rows), section.ordered)


def _typed_row(case: Case, line: int, values: Sequence[Literal], schema: Schema) -> Row:
    if len(values) != len(schema):
        raise _fail(case, line, f"{len(values)} values for the {len(schema)} columns {schema}")
    row: list[Value] = []
    for literal, column in zip(values, schema, strict=True):
        try:
            row.append(_typed(literal, column.type))
        except ValueError:
            raise _fail(case, line, f"{literal.text} is no {column.type} for {column.name}") from None
    return tuple(row)


def _typed(literal: Literal, type_: Type) -> Value:
    """The value a column of this type holds; ValueError where the literal does not fit."""
    kind = type_.kind
    if literal.kind == "null":
        return None
    if type_.element is not None and literal.kind == "list":
        return tuple(_typed(element, type_.element) for element in literal.bounds)
    if kind is Kind.PERIOD and literal.kind == "period":
        begin, end = (_microseconds(bound) for bound in literal.bounds)
        if begin is not None and end is not None:
            return begin, end
    elif kind in (Kind.TIMESTAMP, Kind.INTERVAL):
        value = _microseconds(literal)
        if value is not None:
            return value
    elif kind is Kind.DATE and literal.kind == "text":
        value = parse_date(literal.text)
        if value is not None:
            return value
    elif literal.kind == "nonfinite" and kind in (Kind.DOUBLE, Kind.ANY):
        return float(literal.text)
    elif literal.kind == "boolean" and kind in (Kind.BOOLEAN, Kind.ANY):
        return literal.text == "TRUE"
    elif literal.kind == "text" and kind in (Kind.VARCHAR, Kind.CHANGE, Kind.ANY):
        return literal.text
    elif literal.kind == "number":
        return _number(literal.text, kind)
    raise ValueError


def _number(text: str, kind: Kind) -> int | float | Decimal:
    if kind in (Kind.INT, Kind.BIGINT, Kind.MONTHS):
        return int(text)
    if kind is Kind.DECIMAL:
        return Decimal(text)
    if kind is Kind.DOUBLE or (kind is Kind.ANY and not text.lstrip("+-").isdigit()):
        return float(text)
    if kind is Kind.ANY:
        return int(text)
    raise ValueError


# -- comparing --------------------------------------------------------------------------------------------


def check_case(runnable: Runnable, got: Mapping[str, Sequence[TimedRow]]) -> None:
    """Every query of the case gave its rows, and no other query gave any."""
    unknown = got.keys() - runnable.expected.keys()
    assert not unknown, f"{runnable.case.name}: rows of {', '.join(sorted(unknown))}, which is no query here"
    for query, expected in runnable.expected.items():
        check_rows(expected, got.get(query, ()), f"{runnable.case.name}, query {query}")


def check_rows(expected: ExpectedRows, got: Sequence[TimedRow], what: str = "rows") -> None:
    """AssertionError with both sides beside each other where the rows differ.

    Rows compare by timestamp; those of one timestamp in any order, unless `expected` is ordered.
    """
    comparison = Comparison(expected, tuple(got))
    assert comparison.equal, f"{what} (- expected, + got)\n{comparison.diff}"


@dataclass(frozen=True)
class Comparison:
    expected: ExpectedRows
    got: tuple[TimedRow, ...]

    @cached_property
    def marked(self) -> tuple[tuple[str, TimedRow], ...]:
        """All rows by time with a mark: `-` only expected, `+` only got, blank both."""
        if self.expected.ordered:
            return tuple(_marked_in_order(self.expected.rows, self.got))
        return tuple(_marked_by_time(self.expected.rows, self.got))

    @property
    def equal(self) -> bool:
        return all(mark == " " for mark, _ in self.marked)

    @property
    def diff(self) -> str:
        return "\n".join(f"{mark} {_shown(row)}" for mark, row in self.marked)


def _marked_in_order(expected: Sequence[TimedRow], got: Sequence[TimedRow]) -> Iterator[tuple[str, TimedRow]]:
    for place in range(max(len(expected), len(got))):
        wanted, found = expected[place : place + 1], got[place : place + 1]
        if wanted and found and _same_row(wanted[0], found[0]):
            yield " ", wanted[0]
        else:
            yield from (("-", row) for row in wanted)
            yield from (("+", row) for row in found)


def _marked_by_time(expected: Sequence[TimedRow], got: Sequence[TimedRow]) -> Iterator[tuple[str, TimedRow]]:
    left = list(got)
    marked: list[tuple[str, TimedRow]] = []
    for row in expected:
        match = next((i for i, found in enumerate(left) if _same_row(row, found)), None)
        marked.append(("-" if match is None else " ", row))
        if match is not None:
            del left[match]
    marked += [("+", row) for row in left]
    yield from sorted(marked, key=lambda entry: (entry[1][0] is not None, entry[1][0] or 0))


def _same_row(expected: TimedRow, got: TimedRow) -> bool:
    if expected[0] != got[0] or len(expected[1]) != len(got[1]):
        return False
    return all(_same_value(wanted, found) for wanted, found in zip(expected[1], got[1], strict=True))


def _same_value(expected: object, got: object) -> bool:
    if isinstance(expected, float) and isinstance(got, float):
        return isclose(expected, got, rel_tol=1e-9, abs_tol=1e-12) or (isnan(expected) and isnan(got))
    return type(expected) is type(got) and expected == got


def _shown(row: TimedRow) -> str:
    ts_us, values = row
    seconds = "-" if ts_us is None else f"{Decimal(ts_us) / 1_000_000:f}"
    return f"{seconds:<8} {', '.join(repr(value) for value in values)}"
