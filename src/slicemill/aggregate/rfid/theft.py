"""An item at the door without an authorised person shortly before or after it is being stolen (M43)."""

from __future__ import annotations

import numpy as np

from slicemill.aggregate.rfid.denoising import Flags, Ints


def stolen(at: Ints, authorised: Flags, within_us: int) -> Ints:
    """The items among the readings that raise an alarm, `within_us` after they were seen.

    A person exactly that much earlier or later still counts (X14).

    >>> stolen(np.array([0, 3, 20]), np.array([False, True, False]), 5).tolist()
    [2]
    """
    persons, items = at[authorised], np.flatnonzero(~authorised)
    first_near = np.searchsorted(persons, at[items] - within_us, side="left")
    behind_near = np.searchsorted(persons, at[items] + within_us, side="right")
    alone: Ints = items[first_near == behind_near]
    return alone
