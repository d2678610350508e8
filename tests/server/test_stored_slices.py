"""Chains of slices, and how their cuts are remembered while nobody looks."""

from __future__ import annotations

import pytest

from connectors.sender import eventually
from server.conftest import bid
from server.test_console_data import JOINS
from slicemill.operators.join.inspection import Cuts
from slicemill.server.pages import stored_slices
from slicemill.server.pages.stored_slices import SliceWatch
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.storage.home import Home
from support.engine import feed_rows

UNIT = "joins of bid and sale on item = item"


def test_moves_of_cuts_are_remembered_while_nobody_looks(
    service: MillService, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[str, object]] = []

    def cut_at(home: Home, unit: str) -> list[tuple[int, Cuts]]:
        """Each checkpoint is cut elsewhere."""
        mark = home.units[unit].get("checkpoint")
        looked.append((unit, mark))
        return [(0, Cuts("input 0", 1.0, 1.0, 1.0, (), (), (float(len(looked)),), 1.0))] if mark else []

    monkeypatch.setattr(stored_slices, "cuts_of_unit", cut_at)
    monkeypatch.setattr(stored_slices, "_READ_EVERY_S", 0.01)
    monkeypatch.setattr(stored_slices, "_READING_SHARE", 1)
    UserSession(service).execute(JOINS)
    watch, marks = SliceWatch(service.mill), list[object]()
    watch.start()
    try:
        for second in (1, 2, 3):
            feed_rows(service.mill, "sale", [(1, 5, second * 1_000_000)])
            bid(service, (1, 20, second * 1_000_000 + 1))
            service.mill.checkpoint()
            marks.append(service.mill.home.units[UNIT]["checkpoint"])
            eventually(lambda: looked[-1:] == [(UNIT, marks[-1])])
    finally:
        watch.stop()
    reads = len(looked)
    (chain,) = watch.chains([UNIT])
    assert len({str(mark) for mark in marks}) == 3
    assert len(chain.moves) == sum(mark is not None for _, mark in looked) >= 3
    assert len(looked) == reads  # what a page asks for has been read
    assert {unit for unit, _ in looked} == {UNIT}  # units without joins are left alone
