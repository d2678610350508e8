"""The binder: syntax trees to typed, checked statements.

Every name is resolved, every expression typed, and what cannot run on a stream is refused with a hint.
"""

from __future__ import annotations

from slicemill.esl.binder.script import Bound, bind_script

__all__ = ["Bound", "bind_script"]
