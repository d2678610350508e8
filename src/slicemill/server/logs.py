"""The server's log on standard error: one line per event, as text or as JSON.

2026-01-01T12:00:00Z start: slicemill serves 13 queries at http://127.0.0.1:8080
{"at": "2026-01-01T12:00:00Z", "level": "info", "event": "start", "message": "…", "url": "http://…"}

Events are rare: start, stop, statement, problem, recovered, client cut off, and library warnings. Requests
are not logged. `/metrics` counts them, and the audit log records each change with its user.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum

from slicemill.secrets import redact

_LOGGER = logging.getLogger("slicemill.server")
_EVENT, _FIELDS = "slicemill_event", "slicemill_fields"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def note_event(event: str, message: str, level: int = logging.INFO, **fields: object) -> None:
    """Log an event. `fields` are for programs and appear only in the JSON format."""
    _LOGGER.log(level, "%s", message, extra={_EVENT: event, _FIELDS: fields})


def _at(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLogLines(logging.Formatter):
    """Formatter of log records as text. A stack trace follows the message."""

    def format(self, record: logging.LogRecord) -> str:
        event = getattr(record, _EVENT, record.levelname.lower())
        line = f"{_at(record)} {event}: {record.getMessage()}"
        return redact(f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line)


class JsonLogLines(logging.Formatter):
    """Formatter of log records as JSON objects, one per line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "event": getattr(record, _EVENT, "message"),
            "message": redact(record.getMessage()),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            entry["trace"] = redact(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False, default=str)


@contextmanager
def logging_to_stderr(form: LogFormat) -> Iterator[None]:
    """Log events of slicemill and warnings of all libraries to standard error, inside the context."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogLines() if form is LogFormat.JSON else TextLogLines())
    root, ours = logging.getLogger(), logging.getLogger("slicemill")
    level = ours.level
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.setLevel(level)
        root.removeHandler(handler)
