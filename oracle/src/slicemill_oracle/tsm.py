"""Time-stamp memory registers and the `more` test (M17, M21, M23).

A gate holds one TSM register per input. A register keeps the timestamp of its input's last head tuple; an
enabling timestamp may also raise it. `port` is the `more` test: it returns the input whose head is next,
or NONE. If NONE, `blocked` returns the input to backtrack to.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, Literal, Protocol

from slicemill_oracle.buffers import Reader
from slicemill_oracle.punctuation import BEGINNING

NONE: Final = -1

More = Literal["relaxed", "basic"]


class Gate(Protocol):
    @property
    def registers(self) -> Registers: ...

    def port(self) -> int: ...

    def blocked(self) -> int: ...


class Registers:
    """The TSM registers of one operator, with their active flags (M23).

    A register is active after a predecessor wrote it, until its value has been passed on to the successors.
    """

    __slots__ = ("active", "values")

    def __init__(self, inputs: int) -> None:
        self.values = [BEGINNING] * inputs
        self.active = [False] * inputs

    def raise_to(self, port: int, ts: int) -> None:
        if ts > self.values[port]:
            self.values[port] = ts

    def write(self, port: int, ts: int) -> None:
        """Write an enabling timestamp that arrived over an ETS arc."""
        self.raise_to(port, ts)
        self.active[port] = True

    def must_pass(self) -> bool:
        """Return True if an active value is minimal, to be passed on."""
        low = min(self.values)
        return any(on and value <= low for on, value in zip(self.active, self.values, strict=True))

    def passed(self, low: int) -> None:
        """Deactivate registers up to `low`, which has been passed on.

        Registers with greater values stay active.
        """
        for port, value in enumerate(self.values):
            if value <= low:
                self.active[port] = False

    def low(self) -> int:
        """Return τ of M21, the lower bound of future timestamps."""
        return min(self.values)


def _pick(ports: Sequence[int], random: Random) -> int:
    return ports[0] if len(ports) == 1 else random.choice(ports)


class SingleGate:
    """Gate with one input, without waiting."""

    __slots__ = ("_readers", "registers")

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = readers
        self.registers = Registers(1)

    def port(self) -> int:
        return 0 if self._readers[0].unread else NONE

    def blocked(self) -> int:
        return 0


class UnorderedGate:
    """Gate with several inputs, without waiting (M24).

    Used for latent streams and for operators that do not depend on order.
    """

    __slots__ = ("_random", "_readers", "registers")

    def __init__(self, readers: Sequence[Reader], random: Random) -> None:
        self._readers = readers
        self._random = random
        self.registers = Registers(len(readers))

    def port(self) -> int:
        first = NONE
        first_ts = 0
        for port, reader in enumerate(self._readers):
            if reader.unread:
                ts = reader.head()[0].ts
                self.registers.raise_to(port, ts)
                if first == NONE or ts < first_ts:
                    first, first_ts = port, ts
        return first

    def blocked(self) -> int:
        return _pick(range(len(self._readers)), self._random)


class RelaxedGate:
    """Gate whose `more` test requires a head at τ (M21).

    τ is the least register. `port` returns the input of that head.
    """

    __slots__ = ("_random", "_readers", "registers")

    def __init__(self, readers: Sequence[Reader], random: Random) -> None:
        self._readers = readers
        self._random = random
        self.registers = Registers(len(readers))

    def port(self) -> int:
        values = self.registers.values
        first = NONE
        first_ts = 0
        for port, reader in enumerate(self._readers):
            if reader.unread:
                buffer = reader.buffer
                ts = buffer.items[reader.position - buffer.base][0][0]
                if ts > values[port]:
                    values[port] = ts
                if first == NONE or ts < first_ts:
                    first, first_ts = port, ts
        return first if first != NONE and first_ts <= min(values) else NONE

    def blocked(self) -> int:
        low = self.registers.low()
        values = self.registers.values
        waits = [i for i, reader in enumerate(self._readers) if not reader.unread and values[i] == low]
        return _pick(waits, self._random) if waits else 0


class BasicGate:
    """Gate whose `more` test requires a tuple on every input (M17).

    This rule without registers is used for comparison.
    """

    __slots__ = ("_random", "_readers", "registers")

    def __init__(self, readers: Sequence[Reader], random: Random) -> None:
        self._readers = readers
        self._random = random
        self.registers = Registers(len(readers))

    def port(self) -> int:
        heads = [reader.head()[0].ts for reader in self._readers if reader.unread]
        if len(heads) < len(self._readers):
            return NONE
        for port, ts in enumerate(heads):
            self.registers.raise_to(port, ts)
        return heads.index(min(heads))

    def blocked(self) -> int:
        empty = [port for port, reader in enumerate(self._readers) if not reader.unread]
        return _pick(empty, self._random) if empty else 0
