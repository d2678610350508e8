"""Compiled pseudo-random hash, the same in every process."""

from __future__ import annotations

from typing import Any

import numpy as np

from slicemill.machine_code.kernel import kernel


@kernel
def scattered(number: int, seed: int) -> Any:
    """Like `slicemill.shedding.methods.scattered`."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    mixed = np.uint64(number) + np.uint64(seed) * golden + golden
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
