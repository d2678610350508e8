"""Damaged files that sources and sinks store in a home directory are detected; a spool can be repaired."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.connectors.files.ledger import Ledger
from slicemill.connectors.sinks.sink import SinkError, open_cursor
from slicemill.connectors.stored_files import repair_sources, source_errors
from slicemill.connectors.tcp.spool import Spool, SpoolPosition
from slicemill.errors import SlicemillError

PARTS = [b"".join(b"%d,%d\n" % (part, n) for n in range(30)) for part in range(4)]


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def read_all(folder: Path, most_bytes: int = 50) -> bytes:
    spool = Spool(folder, None)
    try:
        data, at = b"", SpoolPosition(1, 0)
        while spool.has_after(at):
            part = spool.read(at, most_bytes)
            data, at = data + part.data, part.next
        return data
    finally:
        spool.close()


def spooled(home: Path) -> Path:
    folder = home / "sources" / "s"
    spool = Spool(folder, None)
    for number, part in enumerate(PARTS):
        spool.append(part, number)
    spool.close()
    return folder


def test_damaged_lines_of_a_spool_are_rejected_and_a_repair_drops_them(tmp_path: Path) -> None:
    folder = spooled(tmp_path)
    path = folder / "000000000001.lines"
    assert read_all(folder) == b"".join(PARTS) and not list(source_errors(tmp_path))
    begin = len(PARTS[0])
    flip(path, begin + 5)
    with pytest.raises(SlicemillError, match=rf"damaged from byte {begin} to \d+: lines .* home repair"):
        read_all(folder)
    (mistake,) = source_errors(tmp_path)
    assert "lines received there are lost" in mistake
    assert len(list(repair_sources(tmp_path))) == 1
    for most_bytes in (20, 50, 10_000):
        assert read_all(folder, most_bytes) == b"".join([PARTS[0], *PARTS[2:]])
    assert not list(source_errors(tmp_path)) and not list(repair_sources(tmp_path))


def test_a_spool_with_incomplete_checksums_can_be_read(tmp_path: Path) -> None:
    folder = spooled(tmp_path)
    sums = folder / "000000000001.sums"
    whole = sums.read_bytes()
    for content in (b"", whole[:-3], b"?" + whole[1:]):
        sums.write_bytes(content)
        assert read_all(folder) == b"".join(PARTS)
    sums.write_bytes(whole[:-3])
    spool = Spool(folder, None)
    spool.append(b"more\n", 9)
    spool.close()
    assert read_all(folder) == b"".join([*PARTS, b"more\n"])
    flip(folder / "000000000001.lines", -2)
    with pytest.raises(SlicemillError, match="damaged from byte"):
        read_all(folder)


def test_checksums_of_a_spool_are_deleted_with_its_lines(tmp_path: Path) -> None:
    spool = Spool(tmp_path, None, roll_bytes=10)
    for number in range(3):
        spool.append(b"0123456789\n", number)
    spool.free(spool.end)
    spool.close()
    assert {path.name for path in tmp_path.iterdir()} == {"000000000004.lines", "000000000004.sums", "lock"}


def test_a_damaged_ledger_of_read_files_is_rejected(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "sources" / "s")
    upto = ledger.write(0, ["a.json", "b.json"])
    assert ledger.names(upto) == ["a.json", "b.json"]
    whole = ledger.path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            ledger.path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            with pytest.raises(SlicemillError, match="read-files is damaged"):
                ledger.names(upto)
    assert len(list(source_errors(tmp_path))) == 1
    old = b'"a.json"\n"b.json"\n'
    ledger.path.write_bytes(old)
    assert ledger.names(len(old)) == ["a.json", "b.json"], "lines of older versions have no checksum"


def test_a_damaged_cursor_is_rejected(tmp_path: Path) -> None:
    cursor = open_cursor(tmp_path, "sinks", "sink", "log")
    cursor.advance(41)
    path = cursor.folder / "cursor.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            try:
                assert open_cursor(tmp_path, "sinks", "sink", "log").epoch == 41, "a blank is another blank"
            except SinkError as problem:
                assert "is damaged" in str(problem)
    path.write_bytes(b'{"id": "x", "log": "log", "epoch": 3}')
    assert open_cursor(tmp_path, "sinks", "sink", "log").epoch == 3, "an older version wrote no checksum"
