"""The pictures of docs/order.md against the intake and the union."""

from __future__ import annotations

import pytest

from support.order_pictures import DRAWINGS, FOLDER


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_shows_the_behaviour_of_intake_and_union(name: str) -> None:
    path = FOLDER / f"order-{name}.svg"
    assert path.read_text() == DRAWINGS[name]().svg(), "python tests/support/order_pictures.py"
