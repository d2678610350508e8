"""Lines with a checksum: a truncated tail differs from damage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slicemill.storage.changes import frame, split_lines, unframe

CONTENTS = st.lists(st.binary(max_size=30).map(lambda text: text.replace(b"\n", b"")), max_size=5)


@given(CONTENTS, st.integers(0, 200))
def test_complete_lines_are_read_and_a_truncated_line_is_the_tail(contents: list[bytes], cut: int) -> None:
    data = b"".join(frame(content) for content in contents)
    assert split_lines(data) == (contents, len(data), False)
    kept = data[:cut]
    lines = split_lines(kept)
    assert lines.contents == contents[: len(lines.contents)]
    assert lines.end == sum(len(frame(content)) for content in lines.contents) <= len(kept)
    assert not lines.damaged


@given(CONTENTS.filter(bool), st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_is_damage_unless_it_is_in_the_last_line(
    contents: list[bytes], at: int, change: int
) -> None:
    data = bytearray(b"".join(frame(content) for content in contents))
    at %= len(data)
    data[at] ^= change
    lines = split_lines(bytes(data))
    starts = [sum(len(frame(content)) for content in contents[:n]) for n in range(len(contents) + 1)]
    hit = next(n for n in range(len(contents)) if starts[n] <= at < starts[n + 1])
    assert lines.contents == contents[:hit] and lines.end == starts[hit]
    # A damaged newline joins the line with the next line.
    swallowed = at == starts[hit + 1] - 1
    assert lines.damaged == (len(contents) > hit + 1 + swallowed)


def test_malformed_lines_have_no_content() -> None:
    for line in (b"", b"\n", b"00000000\n", b"00000000 ", b"00000000x\n", frame(b"a")[:-1]):
        assert unframe(line) is None
