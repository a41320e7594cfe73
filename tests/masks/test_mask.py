"""The mask grammar: values, error positions, suggestions, canonical text."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ompbind.errors import MaskError
from ompbind.masks.mask import MaskWord, mask_text
from ompbind.masks.parse import parse_mask
from ompbind.planning.mask_resolution import resolve_mask
from ompbind.planning.other_runs import AvailableCpus
from tests.long import examples
from tests.mask_texts import broken, machines, masks

MORE = examples(2.5)


def cpus(text):
    """Return the CPUs of each item of each part."""
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
        ("0-3,^ 2", [[(0, 1, 2, 3), (2,)]]),
        ("000000012", [[(12,)]]),
        ("0x1,00000002", [[(1, 32)]]),
    ],
)
def test_reads_numbers(text, parts):
    assert cpus(text) == parts


def test_reads_chains_of_selectors():
    (part,) = parse_mask("package:1.core:0-2:2,node:#3,^l3:0").parts
    first, second, third = part
    assert [(selector.level, selector.numbers, selector.by_os_number) for selector in first.chain] == [
        ("package", (1,), False),
        ("core", (0, 2), False),
    ]
    assert [selector.span for selector in first.chain] == [(0, 9), (10, 20)]
    assert [(selector.level, selector.numbers, selector.by_os_number) for selector in second.chain] == [
        ("node", (3,), True)
    ]
    assert third.excluded
    assert not first.excluded


@pytest.mark.parametrize(
    ("text", "word"), [("auto", MaskWord.AUTO), (" none ", MaskWord.NONE), ("nobind", MaskWord.NONE)]
)
def test_reads_words(text, word):
    assert parse_mask(text).word is word


@MORE
@given(masks())
def test_every_mask_reads_as_what_it_was_written_from(made):
    text, values = made
    read = [
        [
            (item.excluded, item.cpus, tuple((s.level, s.numbers, s.by_os_number) for s in item.chain))
            for item in part
        ]
        for part in parse_mask(text).parts
    ]
    assert read == values


ERRORS = [
    # text, marked characters, message, suggestion
    ("", "", "an item is empty", "auto"),
    ("0,,1", ",", "an item is empty", "0,1"),
    ("0|", "", "an item is empty", "0"),
    ("0||1", "|", "an item is empty", "0|1"),
    ("0,1,", "", "an item is empty", "0,1"),
    ("3-1", "3-1", "the range '3-1' is reversed", "1-3"),
    ("3-1:2", "3-1:2", "the range '3-1' is reversed", "1-3:2"),
    ("node:0,core:7-4", "7-4", "the range '7-4' is reversed", "node:0,core:4-7"),
    ("-1", "-", "a number is negative", "1"),
    ("0,-1", "-", "a number is negative", "0,1"),
    ("0--3", "-3", "a number is negative", "0-3"),
    ("node:-1", "-", "a number is negative", "node:1"),
    ("0-7:-2", "-2", "a number is negative", "0-7"),
    ("1,x", "x", "'x' is not a number", "1"),
    ("0 1", "0 1", "'0 1' is not a number", "0,1"),
    ("0 - 3", "0 ", "'0 ' is not a number", "0-3"),
    ("0–3", "0–3", "'0–3' is not a number", "0-3"),
    ("0..3|4;5", "0..3", "'0..3' is not a number", "0-3|4,5"),
    ("0-3:4-7", "4-7", "'4-7' is not a number", "0-3,4-7"),
    ("1.5", "1.5", "'1.5' is not a number", "1,5"),
    ("ff", "ff", "'ff' is not a number", "0xff"),
    ("*", "*", "'*' is not a number", "all"),
    ("!3", "!3", "'!3' is not a number", "^3"),
    ("^^3", "^3", "'^3' is not a number", "^3"),
    ("^", "", "a number is missing", "auto"),
    ("0-", "", "a number is missing", "0"),
    ("0-7:", "", "a number is missing", "0-7"),
    ("0-7:2/", "", "a number is missing", "0-7:2"),
    ("0-7:0", "0", "a stride of zero names no CPU", "0-7"),
    ("0-7:0/4", "0/4", "a stride of zero names no CPU", "0-7:4"),
    ("0-7:4/2", "4/2", "cannot take 4 of every 2", "0-7:2/4"),
    ("5:3", "5:3", "a stride needs a range before it", "5"),
    ("0-65536", "65536", "'65536' is too large for a CPU number", "0-65535"),
    ("0,99999999", "99999999", "'99999999' is too large for a CPU number", "0"),
    ("0xfg", "0xfg", "'0xfg' is not a hexadecimal mask", "0xf"),
    ("0x", "0x", "'0x' is not a hexadecimal mask", "auto"),
    ("0xf f", "0xf f", "'0xf f' is not a hexadecimal mask", "0xff"),
    ("0x0XF", "0x0XF", "'0x0XF' is not a hexadecimal mask", "0x0f"),
    ("1,0x0", "0x0", "this hexadecimal mask names no CPU", "1"),
    ("auto|0", "auto", "the word 'auto' cannot be combined with other items", "all|0"),
    ("0,nobind", "nobind", "the word 'nobind' cannot be combined with other items", "0,all"),
    ("All", "All", "the word 'all' must be lower case", "all"),
    ("NONE", "NONE", "the word 'none' must be lower case", "none"),
    ("nod:0", "nod", "unknown selector 'nod'", "node:0"),
    ("socket:0", "socket", "unknown selector 'socket'", "package:0"),
    ("0|numa=1", "numa=1", "'numa=1' is not a number", "0|node:1"),
    ("L3:2", "L3", "unknown selector 'L3'", "l3:2"),
    ("cpu:3-5", "cpu", "unknown selector 'cpu'", "3-5"),
    ("zebra:0,1", "zebra", "unknown selector 'zebra'", "1"),
    ("all.core:0", "all", "unknown selector 'all'", "core:0"),
    ("node:0.^core:0", "^core", "unknown selector '^core'", "node:0,^node:0.core:0"),
    ("node:0:core:1", "0:core:1", "a stride needs a range before it", "node:0.core:1"),
    ("node:", "", "a number is missing", "node:0"),
    ("node", "node", "the selector 'node' has no number", "node:0"),
    ("node0", "node0", "'node0' is not a number", "node:0"),
    ("node:0.core", "core", "the selector 'core' has no number", "node:0.core:0"),
    ("node:0.", "", "a selector is missing", "node:0"),
    ("node:#0-#1", "#1", "'#1' is not a number", "node:#0-1"),
    ("node:1.core:3-0:2,9", "3-0:2", "the range '3-0' is reversed", "node:1.core:0-3:2,9"),
]


@pytest.mark.parametrize(("text", "marked", "message", "suggestion"), ERRORS)
def test_errors_are_marked_and_corrected(text, marked, message, suggestion):
    with pytest.raises(MaskError) as caught:
        parse_mask(text)
    error = caught.value
    assert (text[slice(*error.span)], error.message, error.suggestion) == (marked, message, suggestion)
    assert error.hint
    parse_mask(error.suggestion)


def check_mask_or_error(text):
    """Assert that a text is a mask, or that its error has a position and suggests a valid mask."""
    try:
        parse_mask(text)
    except MaskError as error:
        start, stop = error.span
        assert 0 <= start < stop <= len(text) + 1
        parse_mask(error.suggestion)


@MORE
@given(st.text(alphabet="0123456789-,|^:./#xafnodel ", max_size=30))
def test_any_text_is_a_mask_or_a_marked_error(text):
    check_mask_or_error(text)


@given(st.text(max_size=30))
def test_no_unicode_character_raises_another_error(text):
    check_mask_or_error(text)


@MORE
@given(broken())
@example("0" * 5000)
@example("9" * 5000)
@example("0x" + "f" * 30000)
@example("xff,00000003")
def test_broken_masks_are_marked_and_corrected(text):
    check_mask_or_error(text)


@given(masks(), st.sampled_from(["x", "3-1", "0-3:0", "nod:1", ""]), st.data())
def test_correction_keeps_valid_items_as_written(made, invalid, data):
    parts = [part.split(",") for part in made[0].split("|")]
    place = data.draw(st.integers(0, len(parts) - 1))
    parts[place].append(invalid)
    text = "|".join(",".join(part) for part in parts)
    with pytest.raises(MaskError) as caught:
        parse_mask(text)
    corrected = {"x": "", "3-1": ",1-3", "0-3:0": ",0-3", "nod:1": ",node:1", "": ""}[invalid]
    parts[place][-1:] = [corrected[1:]] if corrected else []
    assert (
        parse_mask(caught.value.suggestion).canonical == parse_mask("|".join(map(",".join, parts))).canonical
    )
    assert all(item.strip() in caught.value.suggestion for part in parts for item in part)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" 0 , 1,2 | 05", "0-2|5"),
        ("3,1,2", "3,1-2"),
        ("7-9,2,8", "7-9,2"),
        ("0,2,4", "0,2,4"),
        ("0,2,4,6", "0-6:2"),
        ("0-1,8-9,16-17,24-25", "0-25:2/8"),
        ("6,4,2,0", "6,4,2,0"),
        ("0-31:2/8,5", "0-25:2/8,5"),
        ("0xff,ffffffff", "0-39"),
        ("^3,^1-2,0-7", "0-7,^1-3"),
        ("^0-6:2", "all,^0-6:2"),
        ("^node:1 , ^core:0,^node:1,^8", "all,^8,^core:0,^node:1"),
        ("1,node:0,1-2,node:0", "1,node:0,2"),
        ("package:1 . l3:0-2:2 . core:0-9:2/8", "package:1.l3:0-2:2.core:0-9:2/8"),
        ("core:#0-8:2/8", "core:#0-8:2/8"),
        ("core:0-6:9", "core:0"),
        ("core:0-9:3/3", "core:0-9"),
        ("0,all", "0,all"),
        (" nobind", "none"),
        ("auto", "auto"),
    ],
)
def test_canonical_text(text, canonical):
    assert mask_text(parse_mask(text)) == canonical


def try_resolve(text, machine, **options):
    try:
        return resolve_mask(parse_mask(text), AvailableCpus(machine=machine), **options)[0]
    except MaskError:
        return None


@MORE
@given(masks(), machines())
def test_canonical_text_means_the_same_and_is_its_own_canonical_text(made, machine):
    mask = parse_mask(made[0])
    text = mask_text(mask)
    assert parse_mask(text).canonical == mask.canonical
    assert mask_text(parse_mask(text)) == text
    assert not any(character.isspace() for character in text)
    for options in ({}, {"allow_partial": True}):
        assert try_resolve(text, machine, **options) == try_resolve(made[0], machine, **options)
