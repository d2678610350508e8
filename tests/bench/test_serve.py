"""Parts of `slicemill bench serve` that need no server."""

from __future__ import annotations

import socket

from slicemill_lab.bench.serve import LineSender, PhaseResult, _in_a_row


def test_clients_with_missing_or_repeated_rows_are_counted() -> None:
    def client(*numbers: int) -> dict[str, object]:
        return {"query": "q0", "way": "sse", "numbers": numbers, "delays_ms": [1.0, 3.0], "epochs": 1}

    found = PhaseResult([client(4, 5, 6), client(4, 6), client(4, 5, 5), client()], ["gone"], 1, 1)
    assert found.broken == 4
    assert found.rows == 8
    assert found.p50_ms == 2.0
    assert not _in_a_row([])


def test_each_line_belongs_to_one_query_and_has_consecutive_numbers() -> None:
    sender = LineSender(queries=3, rows_a_second=1_000)
    try:
        with socket.create_connection(("127.0.0.1", sender.port), 20) as connection:
            lines = connection.makefile("r")
            numbers = [tuple(map(int, next(lines).split(",")))[:2] for _ in range(9)]
    finally:
        sender.stop()
    assert numbers == [(kind, n) for n in range(3) for kind in range(3)]
