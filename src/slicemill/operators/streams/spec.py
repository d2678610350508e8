"""Specification of sources and sinks of the query graph."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.catalog import TimestampKind
from slicemill.operators.description import Description
from slicemill.operators.kind import OperatorKind, Role
from slicemill.operators.operator import Operator


@dataclass(frozen=True, slots=True)
class Source(Operator):
    """Declared stream; rows that are late by at most the slack are reordered."""

    stream: str
    kind: TimestampKind
    slack_us: int = 0


@dataclass(frozen=True, slots=True)
class Scan(Operator):
    """Table, or view over tables: a finite relation that does not change."""

    relation: str


@dataclass(frozen=True, slots=True)
class QueryResults(Operator):
    """Results of a query.

    With `incomplete`, rows of windows that began before the query are included.
    """

    query: str
    incomplete: bool = False


TIMESTAMPS = {
    TimestampKind.EXTERNAL: "external timestamp",
    TimestampKind.INTERNAL: "internal timestamp",
    TimestampKind.LATENT: "no timestamp (latent)",
}

KINDS = (
    OperatorKind(
        spec=Source,
        role=Role.SOURCE,
        words=lambda source, *_: Description(
            "", f"Stream {source.stream}", (("time", TIMESTAMPS[source.kind]),)
        ),
        own_name=lambda source: source.stream,
        seq_bits=lambda *_: SEQ_BITS,
    ),
    OperatorKind(
        spec=Scan,
        role=Role.TABLE,
        words=lambda scan, *_: Description("", f"Table {scan.relation}"),
        own_name=lambda scan: scan.relation,
        relation=lambda scan: scan.relation,
        keeps_state=False,
    ),
    OperatorKind(
        spec=QueryResults,
        role=Role.SINK,
        words=lambda sink, *_: Description("", f"Query {sink.query}"),
        own_name=lambda sink: sink.query,
        keeps_state=False,
        ties=True,
        step="slicemill.operators.streams.step:sink",
    ),
)
