"""Published figures of the execution experiments (stream-mill E1-E19), and why ours are off."""

from __future__ import annotations

from collections.abc import Mapping

from slicemill_lab.published.figure import Printed, at_least, between, change, number, ratio, up_to

FIGURES: Mapping[str, Mapping[str, Printed]] = {
    "mill-E1": {
        "greedy against MSS": up_to(50),
        "component against MSS, noise at the end": up_to(4),
    },
    "mill-E4": {"bursts of 100: BFS over DFS": ratio(1.5)},
    "mill-E5": {
        "1000 and 0.5 t/s: A over C - D": number(4, " orders"),
        "50 and 0.05 t/s: A over C - D": number(4, " orders"),
    },
    "mill-E6": {
        "1000 and 0.5 t/s: A waits idly": number(99, " %"),
        "1000 and 0.5 t/s: C waits idly": between(0, 0.1, " %"),
        "50 and 0.05 t/s: A waits idly": number(99, " %"),
        "50 and 0.05 t/s: C waits idly": between(0, 0.1, " %"),
    },
    "mill-E7": {"A at its peak": at_least(1000, " tuples"), "A over C": at_least(2, " orders")},
    "mill-E8": {"the smallest graph: punctuation against arcs": change(14)},
    "mill-E10": {"A slower than B": between(10, 20, " %")},
    "mill-E11": {"A slower than B": between(10, 20, " %")},
    "mill-E12": {"a slide of 10 000: values kept": number(5)},
    "mill-E15": {
        "1 % noise: Eager against Baseline (unordered)": change(0),
        "50 % noise: Eager against Lazy": change(0),
    },
    "mill-E16": {
        "40 % shed: BFF below random": at_least(45, " %"),
        "50 % shed: BFF below random": at_least(45, " %"),
    },
    "mill-E18": {
        "LoadStar: 10 % shed saves": between(5, 7, " %"),
        "HVWT: 10 % shed saves": between(5, 7, " %"),
        "BFF: 20 % shed saves": number(10, " %"),
    },
    "mill-spark-E5": {"A over C": number(4, " orders")},
    "mill-spark-E6": {"A waits idly": number(99, " %"), "C waits idly": between(0, 0.1, " %")},
    "mill-spark-E7": {"A at its peak": at_least(1000, " tuples"), "A over C": at_least(2, " orders")},
    "mill-spark-E10": {"A slower than B": between(10, 20, " %")},
    "mill-spark-E11": {"A slower than B": between(10, 20, " %")},
    "mill-spark-E12": {"a slide of a quarter: panes against delta": change(-99.99)},
}

WHY: Mapping[str, str] = {}
