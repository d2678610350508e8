"""Aggregates written in ESL, from their text to the emitted rows (M29-M33, G14-G16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from slicemill.aggregates.definition import Returned, RowCall, evaluate
from slicemill.aggregates.frames import Inwindow, WindowFrame
from slicemill.aggregates.udf.lookup import resolve_aggregate
from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import SelectQuery
from slicemill.errors import SlicemillError
from slicemill.functions.rows import compile_expression
from slicemill.operators.row_step import RowOperator
from slicemill.types import Row, Schema, Timed
from slicemill_oracle.operators.group_aggregate import GroupAggregateOperator
from slicemill_oracle.operators.window_aggregate import FramedCall, WindowAggregateOperator


def row_of(expressions: Sequence[Expr], schema: Schema) -> Callable[[Row], Row]:
    getters = [compile_expression(expr, schema) for expr in expressions]
    return lambda row: tuple(getter(row) for getter in getters)


def operator_of(text: str) -> RowOperator:
    """Return the aggregate operator of the only continuous query in an ESL script."""
    catalog = bind(text).catalog
    (query,) = (q.query for q in catalog.queries.values())
    assert isinstance(query, SelectQuery)
    schema = query.inputs[0].schema

    def call(written) -> RowCall:  # type: ignore[no-untyped-def]
        definition = resolve_aggregate(written.name, catalog, distinct=written.distinct)
        return RowCall(definition, row_of(written.arguments, schema))

    if query.aggregates:
        group = row_of([item.expr for item in query.group_by], schema) if query.group_by else None
        return GroupAggregateOperator([call(c) for c in query.aggregates], group)
    return WindowAggregateOperator(
        [
            FramedCall(
                call(c),
                WindowFrame(
                    c.window.frame.value,
                    c.window.extent,
                    c.window.slide,
                    c.window.active,
                    row_of(c.partition_by, schema),
                ),
            )
            for c in query.window_calls
        ]
    )


def run(text: str, tuples: Sequence[Timed]) -> list[Timed]:
    """Return the rows that the query emits over these tuples and at the end of the stream."""
    operator = operator_of(text)
    out = [timed for tuple_ in tuples for timed in operator.process(0, tuple_)]
    return [*out, *operator.finish()]


def stream(*values: object) -> list[Timed]:
    return [Timed(ts, (value,)) for ts, value in enumerate(values)]


def last_column(out: Sequence[Timed]) -> list[object]:
    return [timed.row[-1] for timed in out]


def over_table(text: str, name: str, *values: object) -> Returned:
    """Evaluate the base version over a finite list of values."""
    base = resolve_aggregate(name, bind(text).catalog).base
    assert base is not None
    return evaluate(base, [value if isinstance(value, tuple) else (value,) for value in values])


PRICES = "CREATE STREAM Price(price REAL);"
U1 = """CREATE AGGREGATE avg(Next Real) : Real {
  TABLE state(tsum Real, cnt Int);
  INITIALIZE: { INSERT INTO state VALUES (Next, 1); }
  ITERATE:    { UPDATE state SET tsum=tsum+Next, cnt=cnt+1; }
  TERMINATE:  { INSERT INTO RETURN SELECT tsum/cnt FROM state; } };"""
U2 = """CREATE AGGREGATE decay_online_avg(Next Real) : Real {
  TABLE state(tsum Real, cnt Int);
  INITIALIZE: { INSERT INTO state VALUES (Next, 1); INSERT INTO RETURN VALUES (Next); }
  ITERATE:    { UPDATE state SET tsum=0.9*tsum+1.1*Next, cnt=cnt+1;
                INSERT INTO RETURN SELECT tsum/cnt FROM state; } };"""
N1 = """CREATE WINDOW AGGREGATE avg(Next Real) : Real {
  TABLE inwindow(wnext Real);
  INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT avg(wnext) FROM inwindow; } };"""
N2 = """CREATE WINDOW AGGREGATE myavg(Next Real) : Real {
  TABLE state(tsum Real, cnt Int); TABLE inwindow(wnext Real);
  INITIALIZE: { INSERT INTO state VALUES (Next,1); INSERT INTO RETURN VALUES (Next); }
  ITERATE:    { UPDATE state SET tsum=tsum+Next, cnt=cnt+1; INSERT INTO RETURN SELECT tsum/cnt FROM state; }
  EXPIRE:     { UPDATE state SET cnt=cnt-1, tsum=tsum-oldest().wnext; } };"""
MAX = """CREATE WINDOW AGGREGATE mymax(Next Int) : Int {
  TABLE inwindow(wnext Int);
  INITIALIZE: { INSERT INTO RETURN VALUES (Next); }
  ITERATE:    { DELETE FROM inwindow WHERE wnext < Next; INSERT INTO RETURN VALUES (oldest()); }
  EXPIRE:     { } };"""


def test_u1_a_blocking_average_emits_when_its_input_ends() -> None:
    assert over_table(U1, "avg", 10, 20, 60) == [30.0]
    assert over_table(U1, "avg") == []


def test_g14_a_decayed_average_emits_at_every_tuple() -> None:
    out = run(f"{PRICES} {U2} SELECT decay_online_avg(price) FROM Price", stream(10.0, 20.0, 30.0))
    assert last_column(out) == [10.0, 15.5, pytest.approx(20.3)]


def test_each_group_has_its_own_state() -> None:
    text = (
        f"CREATE STREAM Ask(seller VARCHAR, price REAL); {U2} SELECT seller, decay_online_avg(price) FROM Ask"
    )
    rows = [("ann", 10.0), ("bob", 7.0), ("ann", 20.0)]
    out = run(f"{text} GROUP BY seller", [Timed(0, row) for row in rows])
    assert [timed.row for timed in out] == [("ann", 10.0), ("bob", 7.0), ("ann", 15.5)]


@pytest.mark.parametrize(
    ("definitions", "name"),
    [
        (N1, "avg"),
        (f"{U1} {N1}", "avg"),
        (U1, "avg"),
        (N2, "myavg"),
        ("", "avg"),
    ],
    ids=["N1 over the built-in", "N1 over U1", "derived from U1", "N2", "built-in"],
)
def test_g15_all_definitions_of_a_window_average_agree(definitions: str, name: str) -> None:
    query = f"SELECT {name}(price) OVER (ROWS 2 PRECEDING) FROM Price"
    out = run(f"{PRICES} {definitions} {query}", stream(10.0, 20.0, 30.0, 40.0))
    assert last_column(out) == [10.0, 15.0, 20.0, 30.0]


def test_g16_max_deletes_from_its_window_values_that_can_never_become_the_maximum() -> None:
    window = resolve_aggregate("mymax", bind(MAX).catalog).window
    assert window is not None
    inwindow = Inwindow()
    instance = window(inwindow)
    steps = []
    for number, value in enumerate([5, 3, 4, 1, 2, 6]):
        while (oldest := inwindow.oldest_position()) is not None and oldest < number - 2:
            assert instance.expire(inwindow.oldest() or ()) == []
            inwindow.remove_oldest(oldest)
        inwindow.insert(number, (value,))
        (returned,) = instance.iterate((value,)) if number else instance.initialize((value,))
        steps.append((returned, [args[0] for args in inwindow]))
    assert steps == [(5, [5]), (5, [5, 3]), (5, [5, 4]), (4, [4, 1]), (4, [4, 2]), (6, [6])]


def test_an_empty_window_has_no_oldest_tuple() -> None:
    text = """CREATE WINDOW AGGREGATE probe(x Int) : Int { TABLE inwindow(w Int);
      INITIALIZE: ITERATE: { DELETE FROM inwindow; INSERT INTO RETURN VALUES (oldest()); } };"""
    query = f"{PRICES} {text} SELECT probe(CAST(price AS INT)) OVER (ROWS 2 PRECEDING) FROM Price"
    assert last_column(run(query, stream(1.0, 2.0))) == [None, None]


def test_bodies_can_call_other_user_defined_aggregates() -> None:
    text = f"""{U1} CREATE AGGREGATE spread(x Int) : Real {{ TABLE t(a Int);
      INITIALIZE: ITERATE: {{ INSERT INTO t VALUES (x); }}
      TERMINATE: {{ INSERT INTO RETURN SELECT max(a) - avg(a) FROM t; }} }};"""
    assert over_table(text, "spread", 1, 2, 6) == [3.0]


def test_an_aggregate_that_replaces_a_built_in_can_call_the_built_in() -> None:
    text = """CREATE AGGREGATE max(x Int) : Int { TABLE t(a Int);
      INITIALIZE: ITERATE: { INSERT INTO t VALUES (x); }
      TERMINATE: { INSERT INTO RETURN SELECT max(a) + 1 FROM t; } };"""
    assert over_table(text, "max", 1, 5, 3) == [6]


def test_bodies_can_read_stored_tables() -> None:
    catalog = bind(
        """CREATE TABLE fine(seller VARCHAR, price INT);
        CREATE AGGREGATE fines(who Varchar) : Int {
          INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT sum(price) FROM fine WHERE seller = who; } };"""
    ).catalog
    rows = {"fine": [("ann", 3), ("bob", 4), ("ann", 5)]}
    base = resolve_aggregate("fines", catalog, tables=rows.__getitem__).base
    assert base is not None and evaluate(base, [("ann",)]) == [8]
    base = resolve_aggregate("fines", catalog).base
    with pytest.raises(SlicemillError, match="table fine cannot be read here"):
        base and evaluate(base, [("ann",)])


def test_a_name_without_a_definition_is_the_built_in_aggregate() -> None:
    assert resolve_aggregate("SUM", Catalog()).name == "sum"
    assert resolve_aggregate("count", Catalog(), distinct=True).name == "count_distinct"


def test_an_undefined_aggregate_name_is_reported() -> None:
    with pytest.raises(SlicemillError, match="there is no aggregate mode: define it"):
        resolve_aggregate("mode", Catalog())


def test_base_and_window_version_must_return_the_same_columns() -> None:
    window = """CREATE WINDOW AGGREGATE avg(Next Real) : (a Real, b Real) {
      INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (Next, Next); } };"""
    with pytest.raises(SlicemillError, match="let both return the same"):
        resolve_aggregate("avg", bind(f"{U1} {window}").catalog)


def test_an_algebraic_aggregate_must_accept_its_own_result() -> None:
    text = """CREATE ALGEBRAIC AGGREGATE span(x Int) : (low Int, high Int) {
      INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (x, x); } };"""
    with pytest.raises(SlicemillError, match="leave ALGEBRAIC out"):
        resolve_aggregate("span", bind(text).catalog)
