"""Plan node and EXPLAIN text of the operator that runs CREATE CLASSIFIER."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.extensions.classify.definition import Classifier
from slicemill.operators.protocol import ColumnsRead, Description, Operator, OperatorKind, Role, pluralize
from slicemill.time import format_us


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


KINDS = (
    OperatorKind(
        spec=Classify,
        role=Role.STATEFUL,
        words=lambda classify, *_: _describe(classify.classifier),
        label=lambda _: "classify",
        waits_for_time=lambda *_: True,
        # The last input is the table of training examples, which is complete.
        fed_by=lambda _, node, __: node.inputs[:-1],
        looked_up=lambda classify, port: port == len(classify.classifier.inputs),
        columns_read=lambda classify, port, _: ColumnsRead([], classify.classifier.read(port)),
        history_us=lambda *_: None,
        seq_bits=lambda *_: SEQ_BITS,
        lag_us=lambda classify: classify.classifier.options.lag_us,
        step="slicemill.extensions.classify.step:classify",
    ),
)
