"""Plan node and EXPLAIN text of the operator that runs CREATE CLASSIFIER."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.extensions.classify.definition import Classifier
from slicemill.operators.protocol import ColumnsRead, Description, Operator, OperatorKind, Role, pluralize
from slicemill.time import format_us

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class Classify(Operator):
    """Operator that classifies all objects in each time unit, from few observed features (M49-M57).

    The inputs are the feature streams, in order, and the table of training examples.
    """

    classifier: Classifier


def _describe(classifier: Classifier) -> Description:
    options = classifier.options
    facts = [("features", ", ".join(classifier.features))]
    facts += [("per", classifier.key)] if classifier.key is not None else []
    facts += [
        ("learn", f"{classifier.label} from {classifier.training}"),
        ("every", format_us(classifier.every_us)),
        ("observe", f"{pluralize(options.capacity, 'value')}, chosen by {options.policy}"),
    ]
    facts += [("by", options.observe)] if options.observe is not None else []
    if options.lag_us is not None:
        facts.append(
            ("under load", f"fewer values, for decisions within {format_us(options.lag_us).lower()}")
        )
    return Description("", "Classify", tuple(facts))


class ClassifyKind(OperatorKind[Classify]):
    spec = Classify
    role = Role.STATEFUL
    step = "slicemill.extensions.classify.step:classify"

    def words(self, classify: Classify, node: Node, graph: QueryGraph) -> Description:
        return _describe(classify.classifier)

    def label(self, classify: Classify) -> str:
        return "classify"

    def waits_for_time(self, classify: Classify, kind: TimestampKind) -> bool:
        return True

    def fed_by(self, classify: Classify, node: Node, graph: QueryGraph) -> tuple[str, ...]:
        # The last input is the table of training examples, which is complete.
        return node.inputs[:-1]

    def looked_up(self, classify: Classify, port: int) -> bool:
        return port == len(classify.classifier.inputs)

    def columns_read(self, classify: Classify, port: int, wanted: Collection[str]) -> ColumnsRead:
        return ColumnsRead([], classify.classifier.read(port))

    def history_us(self, classify: Classify, node: Node, graph: QueryGraph) -> int | None:
        return None

    def seq_bits(self, classify: Classify, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        return SEQ_BITS

    def lag_us(self, classify: Classify) -> int | None:
        return classify.classifier.options.lag_us


KINDS = (ClassifyKind(),)
