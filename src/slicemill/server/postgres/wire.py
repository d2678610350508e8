"""Encoding and decoding of messages of the PostgreSQL protocol.

from the client    type (1 byte, not in the first message), length (4), content
from the server    type (1 byte), length (4), content
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST, PROTOCOL_3 = 80877103, 80877104, 80877102, 3
LONGEST_MESSAGE = 16 << 20
LONGEST_START = 10_000  # maximum bytes of each message before authentication


class ProtocolError(Exception):
    """Error: the client violates the protocol. The connection is closed."""


class ClientMessage(NamedTuple):
    kind: bytes
    content: bytes


class ColumnDescription(NamedTuple):
    """Column of a result: name, type oid and size."""

    name: str
    oid: int
    size: int


async def read_startup(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read the first message of a client. Return its code and the rest of its content."""
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    if not 8 <= length <= LONGEST_START:
        raise ProtocolError("the length of the first message is invalid")
    content = await reader.readexactly(length - 4)
    (code,) = struct.unpack("!i", content[:4])
    return code, content[4:]


async def read_message(reader: asyncio.StreamReader, longest: int = LONGEST_MESSAGE) -> ClientMessage:
    """Read the type and the content of a message."""
    kind = await reader.readexactly(1)
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    if not 4 <= length <= longest:
        raise ProtocolError(f"a message of {length} bytes is too long")
    return ClientMessage(kind, await reader.readexactly(length - 4))


def startup_options(content: bytes) -> dict[str, str]:
    """Return the options in the first message of a client."""
    parts = content.rstrip(b"\0").split(b"\0")
    texts = [part.decode("utf-8", "replace") for part in parts]
    return dict(zip(texts[::2], texts[1::2], strict=False))


class ContentReader:
    """Reader of the fields of a message, in order.

    Raises ProtocolError if the message is too short.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._index = 0

    def text(self) -> str:
        end = self._content.find(b"\0", self._index)
        if end < 0:
            raise ProtocolError("a text in a message has no terminating zero byte")
        found = self._content[self._index : end]
        self._index = end + 1
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise ProtocolError("a text in a message is not valid UTF-8") from None

    def byte(self) -> bytes:
        return self._take(1)

    def int16(self) -> int:
        (found,) = struct.unpack("!h", self._take(2))
        return int(found)

    def int32(self) -> int:
        (found,) = struct.unpack("!i", self._take(4))
        return int(found)

    def value_bytes(self) -> bytes | None:
        """Read a value with a length prefix. Return None for NULL."""
        length = self.int32()
        return None if length < 0 else self._take(length)

    def _take(self, length: int) -> bytes:
        found = self._content[self._index : self._index + length]
        if len(found) < length:
            raise ProtocolError("a message is shorter than its declared length")
        self._index += length
        return found


def message(kind: bytes, content: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


def text_of(value: str) -> bytes:
    return value.replace("\0", "").encode() + b"\0"


AUTHENTICATED = message(b"R", struct.pack("!i", 0))
ASK_PASSWORD = message(b"R", struct.pack("!i", 3))
PARSED, BOUND, CLOSED, NO_DATA = (message(kind) for kind in (b"1", b"2", b"3", b"n"))
EMPTY, COPY_DONE, SUSPENDED = (message(kind) for kind in (b"I", b"c", b"s"))


def parameter(name: str, value: str) -> bytes:
    return message(b"S", text_of(name) + text_of(value))


def cancel_key(process: int, secret: int) -> bytes:
    return message(b"K", struct.pack("!ii", process, secret))


def ready(transaction: bytes) -> bytes:
    return message(b"Z", transaction)


def complete(tag: str) -> bytes:
    return message(b"C", text_of(tag))


def copy_out(columns: int) -> bytes:
    return message(b"H", struct.pack(f"!bh{columns}h", 0, columns, *([0] * columns)))


def copy_data(content: bytes) -> bytes:
    return message(b"d", content)


def row_description(columns: Sequence[ColumnDescription], formats: Sequence[int] = ()) -> bytes:
    parts = [struct.pack("!h", len(columns))]
    for index, column in enumerate(columns):
        form = formats[index] if index < len(formats) else 0
        parts.append(text_of(column.name) + struct.pack("!ihihih", 0, 0, column.oid, column.size, -1, form))
    return message(b"T", b"".join(parts))


def data_row(values: Iterable[bytes | None]) -> bytes:
    parts = [b"\xff\xff\xff\xff" if v is None else struct.pack("!i", len(v)) + v for v in values]
    return message(b"D", struct.pack("!h", len(parts)) + b"".join(parts))


def parameter_description(oids: Sequence[int]) -> bytes:
    return message(b"t", struct.pack(f"!h{len(oids)}I", len(oids), *oids))


def error(text: str, code: str = "XX000", extra: Mapping[bytes, str] | None = None) -> bytes:
    """Encode an error with its SQLSTATE. `extra` has further fields, such as hint (H) and position (P)."""
    fields = {b"S": "ERROR", b"V": "ERROR", b"C": code, b"M": text, **(extra or {})}
    return message(b"E", b"".join(name + text_of(value) for name, value in fields.items()) + b"\0")


def too_many_clients() -> bytes:
    return error("sorry, too many clients already", "53300")


def notice(text: str) -> bytes:
    fields = {b"S": "NOTICE", b"V": "NOTICE", b"C": "00000", b"M": text}
    return message(b"N", b"".join(name + text_of(value) for name, value in fields.items()) + b"\0")
