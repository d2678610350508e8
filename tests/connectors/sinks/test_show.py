"""Tables of results on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from slicemill.connectors.sinks.show import results_table
from slicemill.esl.types.schema import BIGINT, TIMESTAMP, Column, Schema


def test_values_that_do_not_fit_on_a_line_are_folded_and_not_cut() -> None:
    times = ("since", "until", "first", "last")
    schema = Schema((Column("reader", BIGINT), *(Column(name, TIMESTAMP) for name in times)))
    at_us = 1_795_000_000_123_456
    seen = io.StringIO()
    Console(file=seen, width=80).print(results_table("visits", schema, [(at_us, (1, *[at_us] * 4))], 1))
    assert "…" not in seen.getvalue()
    assert "".join(seen.getvalue().split()).count("123456") >= 1
    assert max(map(len, seen.getvalue().splitlines())) <= 80
