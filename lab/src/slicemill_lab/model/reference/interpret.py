"""Interpreter of graphs, instance by instance (C12): the reference semantics.

An instance is one slide. Each node fires at most once, after its inputs. A read of a register returns its
content before this instance; a write takes effect in the next instance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from slicemill.extensions.models import vectors
from slicemill.extensions.models.graph import InstancePhase, ModelGraph, ModelNode, Op
from slicemill.extensions.models.operators import ACCUMULATORS
from slicemill.extensions.models.parse import parse
from slicemill.extensions.models.scalars import evaluate, exact
from slicemill.extensions.models.terms import Expr, ModelError
from slicemill.extensions.models.vectors import Vector


@dataclass(frozen=True, slots=True)
class Instance:
    """New elements, by S if several, and the number of expired ones."""

    new: Vector | Mapping[str, Vector]
    leaving: int = 0

    def of(self, source: str) -> Vector:
        """Return the new elements of one source."""
        if not isinstance(self.new, Mapping):
            return self.new
        if source not in self.new:
            raise ModelError(f"{source} (S) brings nothing: let it bring its last vector, or an empty one")
        return self.new[source]


@dataclass(slots=True)
class Work:
    """Number of calls of T functions, of Ac operators and of inverses.

    Calls for the final result are not counted.
    """

    transforms: int = 0
    combinations: int = 0
    inverses: int = 0

    @property
    def calls(self) -> int:
        return self.transforms + self.combinations + self.inverses

    def count(self, node: ModelNode, vector: Vector) -> None:
        if node.op is Op.T and "inverse" in node.params:
            self.inverses += len(vector)
        elif node.op is Op.T and "gather" not in node.params:
            self.transforms += len(vector)
        elif node.op is Op.AC:
            self.combinations += max(len(vector) - 1, 0)


def asynchronous(instances: Iterable[Instance]) -> Iterator[Instance]:
    """Repeat the last vector of sources that have no new elements."""
    latest: dict[str, Vector] = {}
    for instance in instances:
        if isinstance(instance.new, Mapping):
            latest |= instance.new
        yield Instance(dict(latest) or instance.new, instance.leaving)


def run(graph: ModelGraph, instances: Iterable[Instance], work: Work | None = None) -> Iterator[Any]:
    """Yield the value of each instance; the first has the initial window.

    Calls are added to `work`.

    >>> from slicemill.extensions.models.model import expression
    >>> from slicemill.extensions.models.canonical_graphs import incremental_graph
    >>> squares = incremental_graph(expression("sum(x^2)"))
    >>> [int(value) for value in run(squares, [Instance((1, 2, 3, 4)), Instance((5,), leaving=1)])]
    [30, 54]
    """
    running = RunningGraph(graph)
    for instance in instances:
        yield running.slide(instance, work)


class RunningGraph:
    """A graph with its registers, which are None before the first instance."""

    def __init__(self, graph: ModelGraph) -> None:
        graph.validate()
        self.graph = graph
        self.registers: dict[str, Vector] | None = None

    def slide(self, instance: Instance, work: Work | None = None) -> Any:
        """Execute the next instance and return its value."""
        graph = self.graph
        first = self.registers is None
        registers = {node.id: () for node in graph.registers} if self.registers is None else self.registers
        phase = InstancePhase.INITIAL if first else InstancePhase.SUCCESSIVE
        outputs: dict[tuple[str, int], Vector] = {}
        written = dict(registers)
        for node in graph.order(phase):
            given = {}
            for edge in graph.into(node.id, phase):
                source = (edge.src, edge.src_port)
                given[edge.dst_port] = registers[edge.src] if edge.src in registers else outputs[source]
            if node.op is Op.W:
                if given:
                    written[node.id] = given[0]
            elif node.op is Op.S or given:
                if work is not None and given:
                    work.count(node, given.get(0, ()))
                fired = _fire(node, given, instance, graph)
                outputs |= {(node.id, port): vector for port, vector in enumerate(fired)}
        self.registers = written
        return next(iter(outputs[graph.result, 0]), None)


def _fire(
    node: ModelNode, given: Mapping[int, Vector], instance: Instance, graph: ModelGraph
) -> tuple[Vector, ...]:
    first = given.get(0, ())
    params = node.params
    match node.op:
        case Op.S:
            return (tuple(map(_element, instance.of(node.id))),)
        case Op.M:
            return (vectors.merge(first, given.get(1, ())),)
        case Op.Z:
            return (vectors.zipped(first, given[1]),)
        case Op.F if "where" in params:
            return vectors.filter_where(first, *(_function(text, graph) for text in params["where"]))
        case Op.F:
            count = params["oldest"]
            return vectors.filter_oldest(first, instance.leaving if count == "d" else count)
        case Op.T:
            scalars = {name: given[port] for port, name in enumerate(params.get("scalars", ()), start=1)}
            return (_transformed(node, first, scalars, graph),)
        case Op.A if "search" in params:
            options = [Fraction(option) for option in params["options"]]
            # A search without result keeps its position among the values of the cores.
            nothing = () if params.get("optional") else (None,)
            return (vectors.search(first, params["search"], options) or nothing,)
        case Op.A:
            return (vectors.search_where(first, _function(params["where"], graph), first=params["first"]),)
        case Op.AC if params.get("lifted"):
            return ((ACCUMULATORS[params["op"]].combined(first),),)
        case Op.AC:
            return (vectors.accumulate(first, params["op"]),)
        case Op.P:
            return (vectors.permute(first, params["order"]),)
    raise ModelError(f"{node.op} does not fire")


def _transformed(node: ModelNode, vector: Vector, scalars: Mapping[str, Vector], graph: ModelGraph) -> Vector:
    params = node.params
    if "inverse" in params:
        inverse = ACCUMULATORS[params["inverse"]].inverse
        if inverse is None:
            raise ModelError(f"{node.id} (T) is to undo {params['inverse']}, which has no inverse")
        return vectors.uniform(vector, inverse)
    if "gather" in params:
        if len(vector) < len(params["gather"]):
            return (None,)
        if "lower" in params:
            vector = tuple(
                ACCUMULATORS[name].lower(v) for name, v in zip(params["lower"], vector, strict=True)
            )
        return (evaluate(_parsed(params["f"]), dict(zip(params["gather"], vector, strict=True))),)
    if "fs" in params:
        functions = [_function(text, graph) for text in params["fs"]]
        return vectors.transform(
            vector, functions, tail=params.get("tail", False), lenient=params.get("lenient", False)
        )
    whole = {"n": Fraction(len(vector)), **{name: value for name, (value,) in scalars.items()}}
    images = [
        evaluate(_parsed(params["f"]), {**_components(x, graph), **whole, "i": Fraction(i)})
        for i, x in enumerate(vector, start=1)
    ]
    return tuple(map(ACCUMULATORS[params["lift"]].lift, images)) if "lift" in params else tuple(images)


def _function(text: str, graph: ModelGraph) -> Callable[[Any], Any]:
    return lambda element: evaluate(_parsed(text), _components(element, graph))


@cache
def _parsed(text: str) -> Expr:
    return parse(text)


def _components(element: Any, graph: ModelGraph) -> dict[str, Any]:
    values = element if isinstance(element, tuple) else (element,)
    return dict(zip(graph.columns, values, strict=True))


def _element(element: Any) -> Any:
    return tuple(map(exact, element)) if isinstance(element, tuple) else exact(element)
