"""Example of an extension: CREATE SAMPLER, its operator, the aggregate spread, and a section of EXPLAIN."""

from __future__ import annotations

from slicemill.extension import AggregateProvider, ExplainSection, Extension, OperatorHook, StatementHook

SPREAD = AggregateProvider(
    kind="SPREAD",
    names="acme_sampling.spread:NAMES",
    predefined="acme_sampling.spread:predefined",
    accumulator="acme_sampling.spread:SpreadAccumulator",
)

EXTENSION = Extension(
    statements=(
        StatementHook(
            kind="SAMPLER",
            plural="SAMPLERS",
            parse="acme_sampling.statement:create_sampler",
            bind="acme_sampling.statement:bind_sampler",
        ),
    ),
    aggregates=(SPREAD,),
    operators=(OperatorHook(kinds="acme_sampling.spec:KINDS", twins="acme_sampling.step:TWINS"),),
    sections=(ExplainSection(title="samplers", lines="acme_sampling.spec:section"),),
)
