"""Digests depend only on content, in every process."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import pytest

from slicemill.binder import bind
from slicemill.catalog.expressions import ColumnRef, Literal
from slicemill.operators.join.spec import SharedJoin
from slicemill.plan.content import digest, digest_of_calls, quote_name, short_name
from slicemill.types import BIGINT, INT, VARCHAR

SCRIPT = """
CREATE STREAM s(k int, v real) ORDER BY current_time;
CREATE QUERY q AS SELECT k, sum(v) OVER (PARTITION BY k ROWS 9 PRECEDING) AS t FROM s WHERE v > 1.5;
"""
IDS = f"""
from slicemill.binder import bind
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
catalog = bind('''{SCRIPT}''').catalog
print(list(share(optimize(build_graph(catalog)), catalog).nodes))
"""


def test_values_of_different_type_or_position_have_different_digests() -> None:
    values = [1, 1.0, True, "1", b"1", Decimal(1), None, (1,), ((1,),), frozenset({1}), {1: 2}, {2: 1}]
    values += [Literal(1, INT), Literal(1, BIGINT), ColumnRef("1", VARCHAR), ("a", "b"), ("a,b",)]
    assert len({digest(value) for value in values}) == len(values)


def test_sets_and_mappings_have_no_order() -> None:
    names = [f"name {number}" for number in range(50)]
    assert digest(frozenset(names)) == digest(frozenset(reversed(names)))
    assert digest(dict.fromkeys(names, 1)) == digest(dict.fromkeys(reversed(names), 1))


def test_measured_fields_and_default_values_do_not_change_a_digest() -> None:
    join = SharedJoin(((), ()), ())
    assert digest(join) == digest(SharedJoin(((), ()), (), (), None))


def test_an_unsupported_object_is_rejected() -> None:
    with pytest.raises(TypeError, match="object cannot be part of a plan"):
        digest(object())


def test_ids_are_equal_in_processes_with_different_hash_seeds() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", IDS],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1 and "q: window #" in told.pop()


def test_the_digest_of_a_call_includes_all_aggregates_that_it_calls() -> None:
    texts = [
        f"""CREATE STREAM s(v real) ORDER BY current_time;
        CREATE AGGREGATE mine(x real) : real
        {{ TABLE t(n real); INITIALIZE: {{ INSERT INTO t VALUES({start}); }}
        ITERATE: {{ UPDATE t SET n = n + x; }} TERMINATE: {{ INSERT INTO RETURN SELECT n FROM t; }} }};
        CREATE QUERY q AS SELECT mine(v) AS m FROM s [RANGE 9 SECONDS SLIDE 1 SECOND];"""
        for start in ("x", "x", "x + 1")
    ]
    catalogs = [bind(text).catalog for text in texts]
    calls = [catalog.queries["q"].query for catalog in catalogs]
    one, same, other = (
        digest_of_calls(catalog, query) for catalog, query in zip(catalogs, calls, strict=True)
    )
    assert one == same != other


def test_names_are_quoted_and_long_lists_become_a_digest() -> None:
    assert (quote_name("a b"), quote_name('a"'), quote_name("ab")) == ('"a b"', '"a"""', "ab")
    assert short_name(["a", "b"], ("a", "b")) == "a, b"
    assert short_name(["a" * 70], "long") == f"#{digest('long')}"
