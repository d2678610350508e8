"""Join, arrivals and machines of the ring experiments (S52, S53).

Published: 50 tuples per second on each stream, windows of 10 s, 600 s, up to 20 machines. The time to compare
a pair is not published. But 20 machines carried three times the rate on the small join, which is 27 times the
work. So the join cannot have used more than 0.7 of one machine before. Here the small, middle and large join
use a quarter, a half and all of one machine at a selectivity of 0.1. Windows are shorter, which reduces state
and work per tuple, and comparisons are slower to compensate. A message takes 5 µs and a hop 20 µs. These
costs were chosen after a first attempt: joins with six times the work, and hops of 100 µs, could not carry
the doubled rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from slicemill.operators.join.slices.workload import Member, MemberSide
from slicemill.types import Row, Timed
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.analysis.ring_length import RingModel
from slicemill_lab.slice.joins import SECOND_US, matching
from slicemill_oracle.ring.atr import AlignedRouting
from slicemill_oracle.ring.ctr import CoordinatedRouting
from slicemill_oracle.ring.join import RingJoin
from slicemill_oracle.ring.machines import RingCosts
from slicemill_oracle.ring.placement import RolePlacement, SlicePlacement
from slicemill_oracle.ring.ring import Ring, responses

RATE = 50
SEND_S, HOP_S = 5e-6, 2e-5
CLASSES = {"small": 0.25, "middle": 0.5, "large": 1.0}
"""Number of machines that a class of join keeps busy at a selectivity of 0.1."""
SELECTIVITIES = (0.05, 0.1, 0.5)
WINDOW_S: Mapping[Scale, float] = {"small": 0.6, "full": 2.0}
RUN_S: Mapping[Scale, float] = {"small": 2.0, "full": 20.0}
NODES: Mapping[Scale, tuple[int, ...]] = {
    "small": (1, 4, 14, 24),
    "full": (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24),
}
"""Published: 4 to 19. Longer rings show where the time of a round becomes significant."""
System = Ring | AlignedRouting | CoordinatedRouting


@dataclass(frozen=True, slots=True)
class RingSetting:
    """A join of equal streams."""

    cost: str = "small"
    selectivity: float = 0.1
    streams: int = 3
    rate: float = RATE

    def __str__(self) -> str:
        return f"{self.streams} streams, {self.cost}, Sj {self.selectivity:g}"

    def model(self, scale: Scale) -> RingModel:
        """Return the cost model of this setting."""
        pair = RingModel(3, RATE, WINDOW_S[scale], 0.1, 1.0, SEND_S, HOP_S).central_time
        join_s = CLASSES[self.cost] / (3 * RATE * pair)
        return RingModel(self.streams, self.rate, WINDOW_S[scale], self.selectivity, join_s, SEND_S, HOP_S)

    def costs(self, scale: Scale) -> RingCosts:
        return RingCosts(self.model(scale).join_time, SEND_S, SEND_S, SEND_S, HOP_S)

    def join(self, scale: Scale) -> RingJoin:
        """Return the join. Every pair of members of a result must match."""
        member = Member("q", (MemberSide(WINDOW_S[scale] * SECOND_US),) * self.streams)
        matches = matching(self.selectivity)

        def pair(_stream: int, row: Row, _other: int, other_row: Row) -> bool:
            return matches(row, other_row)

        return RingJoin([member], pair)


@dataclass(frozen=True, slots=True)
class MeasuredRing:
    """Mean response of results in seconds, greatest number of stored tuples, and number of results."""

    response: float
    state: int
    results: int


def ring_arrivals(
    setting: RingSetting, seconds: float, seed: int, begin: float = 0.0
) -> Iterator[tuple[int, Timed]]:
    """Yield Poisson arrivals on all streams, in order, from `begin` on."""
    random = Random(f"ring {seed} {begin}")
    merged = []
    for stream in range(setting.streams):
        at = begin
        while (at := at + random.expovariate(setting.rate)) < begin + seconds:
            merged.append((round(at * SECOND_US), stream, (random.getrandbits(32),)))
    for ts, stream, row in sorted(merged):
        yield stream, Timed(ts, row)


def psp(setting: RingSetting, nodes: int, scale: Scale, in_flight: int = 1) -> Ring:
    join = setting.join(scale)
    return Ring(join, SlicePlacement(join, nodes), in_flight=in_flight, costs=setting.costs(scale))


def psp_d(setting: RingSetting, nodes: int, scale: Scale, in_flight: int) -> Ring:
    join = setting.join(scale)
    return Ring(join, RolePlacement(join, nodes), in_flight=in_flight, costs=setting.costs(scale))


def atr(setting: RingSetting, nodes: int, scale: Scale, windows: float) -> AlignedRouting:
    """Return aligned routing, with segments of `windows` windows."""
    segment = round(windows * WINDOW_S[scale] * SECOND_US)
    return AlignedRouting(setting.join(scale), nodes, segment, costs=setting.costs(scale))


def ctr(setting: RingSetting, nodes: int, scale: Scale, copies: int, seed: int) -> CoordinatedRouting:
    """Return coordinated routing, with ten segments per window."""
    segment = round(WINDOW_S[scale] * SECOND_US / 10)
    return CoordinatedRouting(
        setting.join(scale), nodes, copies, segment, costs=setting.costs(scale), random=Random(f"ctr {seed}")
    )


def measured_ring(
    system: System, setting: RingSetting, scale: Scale, seed: int, at_least_s: float = 0.0
) -> MeasuredRing:
    """Run from empty states. Results of the first window are excluded, as states are still filling."""
    found = system.run(ring_arrivals(setting, max(RUN_S[scale], at_least_s), seed))
    warm = [one for one in found if one.newest.ts >= WINDOW_S[scale] * SECOND_US]
    return MeasuredRing(sum(responses(warm)) / len(warm), system.largest, len(found))


@cache
def psp_by_nodes(
    setting: RingSetting, scale: Scale, seed: int, in_flight: int = 1
) -> dict[int, MeasuredRing]:
    """Run the ring at every number of nodes."""
    return {
        nodes: measured_ring(psp(setting, nodes, scale, in_flight), setting, scale, seed)
        for nodes in NODES[scale]
    }


def figures_of(lines: Mapping[str, Mapping[int, MeasuredRing]]) -> dict[str, dict[str, list[float]]]:
    """Return response in ms and state of each line."""
    return {
        name: {
            "response_ms": [round(1000 * one.response, 3) for one in line.values()],
            "state": [one.state for one in line.values()],
        }
        for name, line in lines.items()
    }


def draw_response(result: Result, path: Path, title: str, first: int = 0) -> None:
    """Plot the response over the number of nodes, without the `first` ones."""
    draw_curves(
        path,
        {
            name: curve(result.figures["nodes"][first:], [line["response_ms"][first:]])
            for name, line in result.figures["lines"].items()
        },
        title=title,
        x_label="nodes",
        y_label="mean response [ms]",
    )


def best(line: Mapping[int, MeasuredRing]) -> tuple[int, float]:
    """Return the number of nodes with the least response, and this response in ms."""
    nodes = min(line, key=lambda one: line[one].response)
    return nodes, 1000 * line[nodes].response


def most_over_least(values: Sequence[float]) -> float:
    return max(values) / min(values)


def at_rate(setting: RingSetting, rate: float) -> RingSetting:
    return replace(setting, rate=rate)
