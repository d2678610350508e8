"""States of many groups and partitions are encoded during runs, so that a checkpoint only references them."""

from __future__ import annotations

from random import Random

import pytest

from aggregate.compiler.comparing import call_of, over, tuples_of
from slicemill import types as t
from slicemill.aggregates.calls import CallAnswers
from slicemill.aggregates.udf import interpreted_calls as calls
from slicemill.aggregates.udf.interpreted_calls import InterpretedCall
from slicemill.aggregates.udf.interpreter import no_tables
from slicemill.binder import bind
from slicemill.functions.vectors import to_values
from support.stored import stored

CATALOG = bind("""CREATE AGGREGATE middle(x double) : double { TABLE seen(v double);
    INITIALIZE: ITERATE: { INSERT INTO seen VALUES (x); INSERT INTO RETURN SELECT median(v) FROM seen; }
    TERMINATE: { INSERT INTO RETURN SELECT sum(v) FROM seen; } };""").catalog
WINDOWS = {
    "groups": None,
    "rows": over("ROWS", 2),
    "slots": over("RANGE", 6, 2),
    "expiring": over("RANGE", 3, active=True),
}


def shown(answers: CallAnswers) -> list[tuple[object, ...]]:
    count = len(answers.numbers)
    values = to_values(answers.columns[0], count)
    return list(zip(answers.numbers.tolist(), answers.ts.tolist(), values, strict=True))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("seed", range(4))
def test_encoded_states_continue_like_plain_states(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    call = call_of(CATALOG, "middle", [t.DOUBLE], WINDOWS[name])
    plain, encoding = (InterpretedCall(call, CATALOG, no_tables) for _ in range(2))
    before, kept = plain.start(), encoding.start()
    ts = 0
    for _ in range(12):
        rows = []
        for _ in range(8):
            ts += random.choice([0, 1, 1, 2])
            rows.append((ts, random.randrange(9), random.choice([0.5, 1.5, None, 7.0])))
        tuples = tuples_of(rows, [t.DOUBLE])
        expected = shown(plain.run(before, tuples, ts))
        with monkeypatch.context() as patched:
            patched.setattr(calls, "_FRESH", 2)
            patched.setattr(calls, "_TOGETHER", 1)
            assert shown(encoding.run(kept, tuples, ts)) == expected
        if random.random() < 0.4:
            kept = stored(kept)
            assert encoding.due(kept) == plain.due(before)
    assert kept.running is not None and kept.running.encoded.used > 2
    assert len(kept.running.plain()["groups"]) + len(kept.running.plain()["partitions"]) <= 3
    if WINDOWS[name] is None:
        found, wanted = encoding.finish(kept), plain.finish(before)
        assert found.groups.tolist() == wanted.groups.tolist()
        assert to_values(found.columns[0], 9) == to_values(wanted.columns[0], 9)
