"""The mask grammar, and the positions of its faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.errors import MaskError
from ompbind.mask import Word, parse_mask


def cpus(text):
    """The CPUs of each item of each part, '^' items as negative tuples."""
    return [[item.cpus for item in part] for part in parse_mask(text).parts]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("5", [[(5,)]]),
        ("0-3", [[(0, 1, 2, 3)]]),
        ("0-15:4", [[(0, 4, 8, 12)]]),
        ("0-31:2/8", [[(0, 1, 8, 9, 16, 17, 24, 25)]]),
        ("0xff", [[tuple(range(8))]]),
        ("0xff,ffffffff", [[tuple(range(40))]]),
        ("0x3,5", [[(0, 1), (5,)]]),
        ("3,1,2", [[(3,), (1,), (2,)]]),
        ("0-1|2-3", [[(0, 1)], [(2, 3)]]),
        (" 0 , 1 | 2 ", [[(0,), (1,)], [(2,)]]),
        ("0-3,^2", [[(0, 1, 2, 3), (2,)]]),
    ],
)
def test_reads_numbers(text, parts):
    assert cpus(text) == parts


def test_a_hint_keeps_what_was_right():
    with pytest.raises(MaskError) as caught:
        parse_mask("3-1:2")
    assert caught.value.hint == "write 1-3:2"


def test_reads_selectors_narrowed_by_dots():
    (part,) = parse_mask("package:1.core:0-2:2,node:#3,^l3:0").parts
    first, second, third = part
    assert [(one.level, one.numbers, one.by_os_number) for one in first.chain] == [
        ("package", (1,), False),
        ("core", (0, 2), False),
    ]
    assert [(one.level, one.numbers, one.by_os_number) for one in second.chain] == [("node", (3,), True)]
    assert third.taken_away
    assert not first.taken_away


@pytest.mark.parametrize(("text", "word"), [("auto", Word.AUTO), ("none", Word.NONE), ("nobind", Word.NONE)])
def test_reads_words(text, word):
    assert parse_mask(text).word is word


@pytest.mark.parametrize(
    ("text", "marked", "message"),
    [
        ("", "", "empty"),
        ("0,,1", ",", "empty"),
        ("0|", "", "empty"),
        ("3-1", "3-1", "reversed"),
        ("-1", "-", "negative"),
        ("1,x", "x", "not a number"),
        ("0-", "", "missing"),
        ("0-7:0", "0", "stride of zero"),
        ("0-7:4/2", "4/2", "4 of every 2"),
        ("socket:0", "socket", "unknown selector"),
        ("node:", "", "missing"),
        ("node:0.core", "core", "unknown selector"),
        ("0xfg", "0xfg", "hexadecimal"),
        ("0x", "0x", "hexadecimal"),
        ("1,0x0", "0x0", "names no CPU"),
        ("0xf f", "0xf f", "hexadecimal"),
        ("0x0XF", "0x0XF", "hexadecimal"),
        ("5:3", "5:3", "needs a range"),
        ("3-1:2", "3-1:2", "reversed"),
        ("auto|0", "auto", "stands alone"),
        ("All", "All", "small letters"),
        ("0-65536", "65536", "too large"),
        ("99999999", "99999999", "too large"),
        ("^", "", "empty|missing"),
    ],
)
def test_marks_what_is_wrong(text, marked, message):
    with pytest.raises(MaskError, match=message) as caught:
        parse_mask(text)
    start, stop = caught.value.span
    assert text[start:stop] == marked
    assert caught.value.hint


@given(st.text(alphabet="0123456789-,|^:./#xafnodel ", max_size=30))
def test_any_text_is_a_mask_or_a_marked_fault(text):
    try:
        parse_mask(text)
    except MaskError as error:
        start, stop = error.span
        assert 0 <= start < stop <= len(text) + 1
