"""Journal fields that select a unit's checkpoint to restore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHECKPOINT, BEFORE = "checkpoint", "checkpoint_before"
# Changes of a unit's state since the checkpoint (`engine.unit`).
SINCE_CHECKPOINT = ("newcomers", "successors", "parts_taken")


def gone_back_to(before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a unit that returns to its previous checkpoint."""
    checkpoint = {name: value for name, value in before.items() if name not in SINCE_CHECKPOINT}
    since = {name: before.get(name) or None for name in SINCE_CHECKPOINT}
    return {CHECKPOINT: checkpoint, **since, BEFORE: None}
