"""What a mistake is told, and what comes of doing as its hint says."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from slicemill.sql.errors import EslError


def check_hint(declared: str, written: str, message: str, hint: str, instead: str) -> None:
    """A statement is refused with one message and hint, and what the hint says to write instead is taken."""
    with pytest.raises(EslError) as raised:
        bind(declared + written)
    (diagnostic,) = raised.value.diagnostics
    assert message in diagnostic.message
    assert hint in diagnostic.hint
    bind(declared + instead)
