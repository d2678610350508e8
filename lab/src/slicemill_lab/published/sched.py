"""Published figures of the scheduling experiments (metrics-and-schedulers E0-E28), and why ours are off."""

from __future__ import annotations

from collections.abc import Mapping

from slicemill_lab.published.figure import Printed, between, change, number, ratio, up_to

FIGURES: Mapping[str, Mapping[str, Printed]] = {
    "sched-E0": {
        "HR: mean response": number(12.25),
        "HR: mean slowdown": number(3.875),
        "HNR: mean response": number(13.0),
        "HNR: mean slowdown": number(2.9),
    },
    "sched-E1": {
        "load 0.7: HNR against RR": change(-74),
        "load 0.7: HNR against SRPT": change(-51),
        "load 0.7: HNR against HR": change(-18),
        "load 0.97: HNR against RR": change(-75),
        "load 0.97: HNR against SRPT": change(-53),
        "load 0.97: HNR against HR": change(-20),
    },
    "sched-E2": {
        "load 0.7: HNR against HR": change(4),
        "load 0.97: HNR against HR": change(7),
        "load 0.97: FCFS over HR": ratio(6.3),
    },
    "sched-E3": {"load 0.97: FCFS against HR": change(-75)},
    "sched-E4": {"load 0.97: LSF against HNR": change(-80)},
    "sched-E5": {
        "greatest slowdown: BSD against HNR": change(-44),
        "mean slowdown: BSD against LSF": change(-80),
    },
    "sched-E6": {"BSD against LSF": up_to(-57), "BSD against HNR": up_to(-24)},
    "sched-E7": {"BRT against FCFS": up_to(-51), "BRT against HR": up_to(-23)},
    "sched-E9": {
        "selectivities of 0.1: BSD against HR": change(0),
        "selectivities of 0.1: BSD against HNR": change(0),
        "selectivities up to 0.5: BSD against HR": change(-44),
        "selectivities up to 0.5: BSD against HNR": change(-19),
        "selectivities up to 1: BSD against HR": change(-61),
        "selectivities up to 1: BSD against HNR": change(-27),
    },
    "sched-E10": {
        "selectivities of 0.1: the better oracle against its policy": up_to(-80),
        "selectivities up to 1: HR-O against HR": change(-12),
        "selectivities up to 1: HNR-O against HNR": change(-12),
    },
    "sched-E12": {
        "BSD against HNR": up_to(-14),
        "load 0.9: RR over BSD": ratio(17),
        "load 0.9: FCFS over BSD": ratio(15),
    },
    "sched-E14": {"HNR against HR": up_to(-22), "BSD against HNR": up_to(-13)},
    "sched-E15": {
        "mean slowdown: Chain over HNR": ratio(3),
        "l2 slowdown: Chain over BSD": ratio(2.2),
        "memory: HNR over Chain": ratio(2),
        "memory: BSD over Chain": ratio(1.85),
    },
    "sched-E16": {
        "the best number of logarithmic clusters": number(12),
        "12 logarithmic clusters against BSD without overhead": change(5),
    },
    "sched-E17": {
        "naive over BSD without overhead": ratio(65.7),
        "clustered processing against BSD without overhead": change(5),
    },
    "sched-E18": {
        "HR, mean response: PDT against Max": change(-21),
        "HR, mean response: PDT against Sum": change(-12),
        "HNR, mean slowdown: PDT against Max": change(-24),
        "HNR, mean slowdown: PDT against Sum": change(-18),
        "BSD, l2 slowdown: PDT against Max": change(-10),
        "BSD, l2 slowdown: PDT against Sum": change(-8),
    },
    "sched-E19": {
        "deviation 5: adaptive against static HR": change(-90),
        "deviation 5: adaptive against static HNR": change(-85),
        "deviation 25: adaptive against static HR": change(-26),
        "deviation 25: adaptive against static HNR": change(-24),
    },
    "sched-E20": {
        "HR: the best window": between(50, 150, " tuples"),
        "BSD: the best window": between(50, 150, " tuples"),
    },
    "sched-E21": {"HR: the best weight": between(0.1, 0.25), "BSD: the best weight": between(0.1, 0.25)},
    "sched-E22": {
        "load 0.1: FAS against HR": change(-30),
        "load 0.95: FAS against HR": change(-40),
        "load 0.95: staleness under HR": number(16, " %"),
        "load 0.95: staleness under FAS": number(10, " %"),
    },
    "sched-E23": {"load 0.95: FAS against HR": change(23)},
    "sched-E25": {
        "β 0.25, staleness: FAS against HR": change(-20),
        "β 0.25, response: FAS against HR": change(14),
    },
    "sched-E26": {"no skew: FAS against HR": change(-39), "skewed: FAS against HR": up_to(-55)},
    "sched-E27": {
        "five bursty streams: FAS against HR": change(-40),
        "ten bursty streams: FAS against HR": change(-22),
        "bursty streams at which FAS gains most": number(5),
    },
}

WHY: Mapping[str, str] = {}
