"""Lines with prefixes: tables of expected output, and properties for any division into blocks."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.execution.output import line_prefix
from ompbind.execution.output.line_prefix import LinePrefixer, add_timestamp, make_prefixes

PREFIXES = make_prefixes(2)


def test_a_line_has_the_timestamp_of_its_end():
    lines = LinePrefixer(16)
    early, late = (add_timestamp(PREFIXES, timestamp) for timestamp in (b"10:00:00.000", b"10:00:05.000"))
    assert list(lines.add(b"a", early)) == []
    assert b"".join(lines.add(b"\nb\n", late)) == b"[2] 10:00:05.000 a\n[2] 10:00:05.000 b\n"


PIECES = (b"\n", b"a", b"bc", b"\r", b"\xff", b"[1] ", b"0" * 9, b"1" * 40)
BYTES = st.lists(st.sampled_from(PIECES)).map(b"".join)


def add_prefixes_line_by_line(data, limit):
    out = b""
    for line in data.removesuffix(b"\n").split(b"\n") if data else ():
        pieces = [line[at : at + limit] for at in range(0, len(line), limit)] or [b""]
        out += b"".join(PREFIXES[at > 0] + piece + b"\n" for at, piece in enumerate(pieces))
    return out


@given(st.data(), BYTES, st.integers(1, 60))
def test_output_does_not_depend_on_the_division_into_blocks(data, written, limit):
    """And at most one line is kept, of limited length."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)))))
    lines, bare, out, kept = LinePrefixer(limit), LinePrefixer(limit), b"", 0
    for start, stop in pairwise([0, *cuts, len(written)]):
        out += b"".join(lines.add(written[start:stop], PREFIXES))
        kept += stop - start - sum(map(len, bare.add(written[start:stop], (b"", b""))))
        assert kept <= limit  # it may be negative: each piece adds a newline
    assert out + b"".join(lines.finish(PREFIXES)) == add_prefixes_line_by_line(written, limit)


def test_limits_of_lines():
    most = line_prefix.LINE_LIMIT
    for streams, limit in ((0, most), (32, most), (64, 512 << 10), (2000, 16 << 10)):
        found = line_prefix.divide(line_prefix.KEPT_LIMIT, streams, line_prefix.LEAST_LIMIT, most)
        assert found == limit <= line_prefix.KEPT_LIMIT / max(streams, 1)


def test_only_the_prefix_is_coloured_and_colours_repeat():
    assert make_prefixes(0, coloured=True) == (b"\x1b[36m[0]\x1b[0m ", b"\x1b[36m[0+]\x1b[0m ")
    assert len({make_prefixes(rank, coloured=True)[0][:6] for rank in range(10)}) == 10
    assert make_prefixes(10, coloured=True)[0].startswith(b"\x1b[36m[10]")
    assert add_timestamp(make_prefixes(1), b"20:06:53.123") == (b"[1] 20:06:53.123 ", b"[1+] 20:06:53.123 ")


@pytest.mark.parametrize(("data", "whole", "lines"), [
    (b"\n\n", True, ()), (b"a\nb\n\n", True, ("a", "b")), (b"alf\nb\n", False, ("b",)),
    (b"endless", False, ("endless",)), (b"\xffa\n", True, ("\ufffda",)),
    (b"".join(b"%d\n" % n for n in range(30)), True,
     tuple(map(str, range(30)))[-line_prefix.LAST_LINES_LIMIT :]),
])  # fmt: skip
def test_decode_last_lines(data, whole, lines):
    assert line_prefix.decode_last_lines(data, whole=whole) == lines
