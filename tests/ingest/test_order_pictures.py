"""The pictures of docs/order.md are what the intake and the union do."""

from __future__ import annotations

import pytest

from support.order_pictures import DRAWINGS, FOLDER


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_shows_what_is_done(name: str) -> None:
    path = FOLDER / f"order-{name}.svg"
    assert path.read_text() == DRAWINGS[name]().svg(), "python tests/support/order_pictures.py"
