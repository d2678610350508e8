"""Fields of a unit in the journal that say which checkpoint its state is restored from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHECKPOINT, BEFORE = "checkpoint", "checkpoint_before"
# What has become of a unit's state after the checkpoint (`engine.unit`).
SINCE_CHECKPOINT = ("newcomers", "successors")


def gone_back_to(before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed fields of a unit when the checkpoint before its last one becomes the last."""
    checkpoint = {name: value for name, value in before.items() if name not in SINCE_CHECKPOINT}
    since = {name: before.get(name) or None for name in SINCE_CHECKPOINT}
    return {CHECKPOINT: checkpoint, **since, BEFORE: None}
