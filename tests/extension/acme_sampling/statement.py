"""CREATE SAMPLER name ON stream EVERY number: a stream of each n-th row of another stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from slicemill.binder.context import Context
from slicemill.binder.create import refuse_taken_name
from slicemill.catalog.extended import ComputedStream
from slicemill.sql.cursor import Cursor
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import CreateObject, child, span_of
from slicemill.sql.printer import EslGenerator
from slicemill.types import Schema


class CreateSampler(CreateObject):
    """CREATE SAMPLER."""

    kind = "SAMPLER"
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "stream": True, "every": True}

    def esl(self, generator: EslGenerator) -> str:
        name, stream, every = (generator.sql(self, key) for key in ("this", "stream", "every"))
        return f"CREATE SAMPLER {name} ON {stream} EVERY {every}"


@dataclass(frozen=True, slots=True)
class Sampler(ComputedStream):
    """A bound CREATE SAMPLER."""

    name: str
    stream: str
    every: int
    schema: Schema
    kind: ClassVar[str] = "SAMPLER"
    operator: ClassVar[str] = "acme_sampling.spec:Sample"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.stream,)

    @property
    def summary(self) -> str:
        return f"each {self.every}th row of {self.stream}"


def create_sampler(c: Cursor, name: exp.Identifier) -> CreateSampler:
    c.expect("ON")
    stream = c.name("a stream")
    c.expect("EVERY")
    number = c.number()
    if number is None:
        c.fail()
    return CreateSampler(this=name, stream=stream, every=exp.Literal.number(number))


def bind_sampler(node: CreateSampler, context: Context) -> Sampler:
    refuse_taken_name(node.this, context)
    relation = context.relation(child(node, "stream"))
    every = int(child(node, "every").name)
    if every < 1:
        raise StatementError("EVERY counts from 1", span_of(child(node, "stream")), "write EVERY 10")
    return Sampler(node.this.name, relation.name, every, relation.schema)
