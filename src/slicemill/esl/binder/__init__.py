"""The binder: turn syntax trees into typed, checked statements.

The binder resolves every name and types every expression. It rejects what cannot run on a stream, with a
hint.
"""

from __future__ import annotations

from slicemill.esl.binder.script import Bound, bind_script

__all__ = ["Bound", "bind_script"]
