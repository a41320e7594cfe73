"""Lines with prefixes: tables of expected output, and properties for any division into blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.execution.output.line_prefix import (
    KEPT_LIMIT,
    LAST_LINES_LIMIT,
    LINE_LIMIT,
    LinePrefixer,
    add_timestamp,
    decode_last_lines,
    line_limit,
    make_prefixes,
)

PREFIXES = make_prefixes(2)


def add_prefixes(blocks, *, limit=16, prefixes=PREFIXES):
    """Return the whole output for some blocks."""
    lines = LinePrefixer(limit)
    out = [buffer for block in blocks for buffer in lines.add(block, prefixes)]
    return b"".join([*out, *lines.finish(prefixes)])


def test_lines_get_prefixes():
    blocks = [b"10%\r\xff\n", b"x" * 17, b"\nlast"]
    out = b"[2] 10%\r\xff\n[2] " + b"x" * 16 + b"\n[2+] x\n[2] last\n"
    assert add_prefixes(blocks) == out


def test_a_line_has_the_timestamp_of_its_end():
    lines = LinePrefixer(16)
    early, late = (add_timestamp(PREFIXES, timestamp) for timestamp in (b"10:00:00.000", b"10:00:05.000"))
    assert list(lines.add(b"a", early)) == []
    assert b"".join(lines.add(b"\nb\n", late)) == b"[2] 10:00:05.000 a\n[2] 10:00:05.000 b\n"


PIECES = (b"\n", b"a", b"bc", b"\r", b"\xff", b"[1] ", b"0" * 9, b"1" * 40)
BYTES = st.lists(st.sampled_from(PIECES)).map(b"".join)


def divided(draw, data):
    cuts = sorted(draw(st.lists(st.integers(0, len(data)))))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def add_prefixes_line_by_line(data, limit, prefixes=PREFIXES):
    """Return what the fast implementation must return, made line by line."""
    first, more = prefixes
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    out = b""
    for line in lines:
        pieces = [line[at : at + limit] for at in range(0, len(line), limit)] or [b""]
        out += b"".join((more if at else first) + piece + b"\n" for at, piece in enumerate(pieces))
    return out


@given(st.data(), BYTES, st.integers(1, 60))
def test_output_does_not_depend_on_the_division_into_blocks(data, written, limit):
    """And at most one line is kept, of limited length."""
    blocks = divided(data.draw, written)
    assert add_prefixes(blocks, limit=limit) == add_prefixes_line_by_line(written, limit)
    lines, kept = LinePrefixer(limit), 0
    for block in blocks:
        kept += len(block) - sum(map(len, lines.add(block, (b"", b""))))
        assert kept <= limit  # it may be negative: each piece adds a newline


@pytest.mark.parametrize(
    ("streams", "limit"), [(0, LINE_LIMIT), (32, LINE_LIMIT), (64, 512 << 10), (2000, 16 << 10)]
)
def test_limits_of_lines(streams, limit):
    assert line_limit(streams) == limit
    assert streams * limit <= KEPT_LIMIT


def test_only_the_prefix_is_coloured_and_colours_repeat():
    assert make_prefixes(0, coloured=True) == (b"\x1b[36m[0]\x1b[0m ", b"\x1b[36m[0+]\x1b[0m ")
    assert len({make_prefixes(rank, coloured=True)[0][:6] for rank in range(10)}) == 10
    assert make_prefixes(10, coloured=True)[0].startswith(b"\x1b[36m[10]")
    assert add_timestamp(make_prefixes(1), b"20:06:53.123") == (b"[1] 20:06:53.123 ", b"[1+] 20:06:53.123 ")


@pytest.mark.parametrize(("data", "whole", "lines"), [
    (b"\n\n", True, ()), (b"a\nb\n\n", True, ("a", "b")), (b"alf\nb\n", False, ("b",)),
    (b"endless", False, ("endless",)), (b"\xffa\n", True, ("\ufffda",)),
    (b"".join(b"%d\n" % n for n in range(30)), True, tuple(map(str, range(30 - LAST_LINES_LIMIT, 30)))),
])  # fmt: skip
def test_decode_last_lines(data, whole, lines):
    assert decode_last_lines(data, whole=whole) == lines
