"""Published figures of the experiments on sliced joins (E1-E10), and reasons for deviations."""

from __future__ import annotations

from collections.abc import Mapping

from slicemill_lab.published.figure import Printed, between, number, ratio, up_to

_LAST_OVER_FIRST = "to {}/s: response of the last third over that before, with adaptation"

_RISING = (
    "Twice the rate is eight times the work for three streams, three times the rate 27 times. The "
    "publication used up to 20 machines, and this run has two cores. Response is the wall-clock time "
    "for a second's tuples. At the small scale, no cells are added: a unit gets other cells when one "
    "of its cells has taken more than half a core at three checks, 2 s apart. The middle join takes "
    "0.03 to 0.04 of a core, and the run ends after 7 s. So these are figures of one cell. Most of "
    "its time is the cost of a run and a message, on a machine that also does other work."
)

FIGURES: Mapping[str, Mapping[str, Printed]] = {
    "slice-E1": {
        "mean saving against pull-up": between(20, 30, " %"),
        "mean saving against push-down": between(20, 30, " %"),
        "greatest saving against pull-up": number(50, " %"),
    },
    "slice-E2": {
        "mean saving against pull-up, over all Sj": between(10, 40, " %"),
        "greatest saving against pull-up": number(100, " %"),
    },
    "slice-E4": {
        "state-slice": number(2308.2, " MB"),
        "isolated": number(2325.8, " MB"),
        "pull-up": number(6484.5, " MB"),
    },
    "slice-E5": {
        "mean saving against isolated": between(20, 30, " %"),
        "mean saving against pull-up": between(20, 30, " %"),
    },
    "slice-E6": {
        "isolated": number(5820.9, " million"),
        "state-slice": number(6422.7, " million"),
        "pull-up": number(27227.9, " million"),
    },
    "slice-E8": {
        "state below pull-up, mean over panels and rates": between(20, 30, " %"),
        "state below push-down, mean over panels and rates": between(20, 30, " %"),
    },
    "slice-E9": {"ahead of the better rival": up_to(40)},
    "slice-spark-E8": {
        "rows in state, below pull-up": between(20, 30, " %"),
        "rows in state, below push-down": between(20, 30, " %"),
    },
    "slice-spark-E9": {"ahead of the better rival": up_to(40)},
    "slice-spark-E12": {
        "state at the most nodes over that of one": ratio(1),
        "the best number of nodes, Sj 0.5": number(14, " nodes"),
    },
    "slice-spark-E17": {_LAST_OVER_FIRST.format(100): ratio(1)},
    "slice-spark-E18": {_LAST_OVER_FIRST.format(rate): ratio(1) for rate in (100, 150)},
}

WHY: Mapping[str, str] = {
    "slice-E1": (
        "The publication's own formula (Eq 5.2) has means of one eighth and one fifth over the square of "
        "its parameters."
    ),
    "slice-E5": (
        "The mean of the publication's own formula (Eq 6.4) is 12 % against isolated trees, and 38 % "
        "against pull-up."
    ),
    "slice-E8": (
        "By the model, the saving is 3 to 33 % against pull-up and 8 to 28 % against push-down, depending "
        "on the overlap of windows. It is 20 % and more in six of nine settings. The mean is below the "
        "published range."
    ),
    "slice-E9": "Service rates are counted in comparisons, which is all that a tuple costs here.",
    "slice-spark-E8": (
        "Set at a time, rows are deleted with their slice, which is an eighth of the longest window, and "
        "in batches of 3 s. So all plans store slightly more rows than they need."
    ),
    "slice-spark-E9": (
        "Processor time of the workers; set at a time, a probe costs less against what a result costs, "
        "which is the same for all ways."
    ),
    "slice-spark-E12": (
        "In the join by time, no row is stored twice. The excess over 1 is rows whose slice has not "
        "ended, a few on each node. Response is wall-clock time on a machine with two cores. A third node "
        "has no core of its own, and each node costs a run and a message. The publication used one "
        "machine for each node. The processor time of one node of many is shown beside the response. It "
        "falls as long as there is work to divide."
    ),
    "slice-spark-E17": _RISING,
    "slice-spark-E18": _RISING,
}
