"""Search for the queries that make a run fail.

The search is necessary if several queries share the failing step. In a trial, the task repeats the failed run
with only some of the suspects and discards the results. A set of suspects that fails is halved, until the
queries that fail alone are known:

    a b c d e f g h    the run has failed; f is the cause
    -                  passes: the rows can be read without any suspect
    a b c d            passes
    e f                fails      (not tried if `e f g h` had to fail)
    e                  passes
    f                  fails      f is stopped
    g h                passes

The search is only in memory. After a crash the run fails again, and a new search begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Maximum number of failed trials (runs with only some queries) in a search.
# After that many failures, all queries that may still be the cause are stopped.
MOST_FAILED_TRIALS = 32


@dataclass(frozen=True, slots=True)
class _Trial:
    suspects: tuple[str, ...]
    # True if the next trial has the other half of a set of queries that failed together.
    halved: bool = False


class CulpritSearch:
    """Search for the queries that make a run fail, by trials with fewer and fewer queries.

    `guilty` maps each query that fails alone to its error.
    """

    def __init__(self, suspects: Sequence[str]) -> None:
        self.suspects = tuple(suspects)
        self.guilty: dict[str, str] = {}
        self._failed = 0
        self._waiting: list[_Trial] = []
        self._halve(self.suspects)
        self._waiting.append(_Trial(()))

    @property
    def over(self) -> bool:
        """Return True if no trial is left. A trial is a run with only some of the queries."""
        return not self._waiting

    @property
    def trial(self) -> tuple[str, ...]:
        """Return the queries that take part in the current trial run."""
        return self._waiting[-1].suspects

    def passed(self) -> None:
        """Record that the current trial run succeeded, so that none of its queries fails."""
        if self._waiting.pop().halved and len(other := self._waiting[-1].suspects) > 1:
            # A set of queries failed and its first half did not, so the second half must fail.
            self._waiting.pop()
            self._halve(other)

    def failed(self, why: str | Mapping[str, str]) -> None:
        """Record that the current trial run failed.

        Halve the set of suspected queries, or record the only suspect as guilty. If the trial without
        suspects fails, no query is the cause, and all suspects are stopped.
        """
        suspects = self._waiting.pop().suspects
        self._failed += 1
        if suspects and self._failed < MOST_FAILED_TRIALS:
            if len(suspects) > 1:
                self._halve(suspects)
                return
        else:
            suspects = (*suspects, *(log for trial in self._waiting for log in trial.suspects))
            self._waiting.clear()
        words = why if isinstance(why, str) else next(iter(why.values()))
        self.guilty |= {log: words if isinstance(why, str) else why.get(log, words) for log in suspects}

    def _halve(self, suspects: tuple[str, ...]) -> None:
        middle = len(suspects) // 2
        self._waiting += [_Trial(suspects[middle:]), _Trial(suspects[:middle], halved=True)]
