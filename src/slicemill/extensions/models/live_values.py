"""Current values of models in running queries, read from checkpoints (C19).

There is one record per query and call, with the values of each partition:

    [{"query": "q", "model": "sum(x^2)/n", "arguments": ["v"], "window": "ROWS 3 PRECEDING", "partitions":
      [{"key": [1], "elements": 4, "result": 2.5,
        "cores": [{"node": "ac", "core": "sum(v^2)", "value": 10.0}, …]}]}]

`cores` has the values of the core statistics: sums, counts and extremes from which the result is computed.
`node` is an identifier in the graph that `slicemill explain --model NAME --format json` prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from slicemill.aggregates.udf.compiler.compiled import CompiledCall
from slicemill.columns.keys import Keys
from slicemill.extensions.models.calls import ModelCall, argument_name
from slicemill.extensions.models.compiler.inspection import values_of_models
from slicemill.operators.protocol import preceding
from slicemill.operators.window.routines import CallsState, RoutineState
from slicemill.runtime.state_view import map_states
from slicemill.storage.home import Home


def model_values_of(home: Path | Home, query: str | None = None) -> list[dict[str, Any]]:
    """Return the values of all models called with OVER, from the last checkpoints.

    With `query`, only the models of this query are returned.
    """
    by_call: dict[tuple[str, ...], dict[str, Any]] = {}
    for record in map_states(home, lambda _, __, ___, state: _records(state)):
        partitions = record.pop("partitions")
        name = (record["query"], record["model"], *record["arguments"], record["window"])
        by_call.setdefault(name, {**record, "partitions": []})["partitions"].extend(partitions)
    return [record for record in by_call.values() if query in (None, record["query"])]


def _records(state: object) -> Iterable[dict[str, Any]]:
    if not isinstance(state, CallsState):
        return
    for name, member in state.members.items():
        for number, call in dict.fromkeys(member.answers):
            if not isinstance(call, ModelCall):
                continue
            routine = state.routines[number]
            keys = state.keys.get(routine.partition_by, Keys())
            yield {
                "query": name.split(":")[0],
                "model": call.model.text,
                "arguments": [argument_name(argument) for argument in call.arguments],
                "window": preceding(routine.window),
                "partitions": list(_partitions(routine, routine.asked.index(call), keys)),
            }


def _partitions(routine: RoutineState, number: int, keys: Keys) -> Iterable[dict[str, Any]]:
    if routine.accumulators is None:
        return
    call = routine.joint_calls.uda
    assert isinstance(call, CompiledCall)
    module = call.module_of(routine.accumulators)
    columns = [column.to_pylist() for column in keys.values(np.arange(len(keys)))]
    for index in range(len(keys)):
        values = list(values_of_models(module, routine.accumulators.arrays, index))
        if values:
            value = asdict(values[number])
            yield {
                "key": [_plain(column[index]) for column in columns],
                **value,
                "cores": list(value["cores"]),
            }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
