"""The mask grammar: values, error positions, canonical text."""

import re

import pytest
from hypothesis import given

from ompbind.errors import MaskError
from ompbind.masks.mask import MaskWord, mask_text, parse_mask
from ompbind.masks.resolution import UsableCpus, resolve_mask
from tests.long import examples
from tests.mask_texts import masks
from tests.planning.test_promises import machines

MORE = examples(2.5)


def test_reads_words():
    words = [parse_mask(text).word for text in ("auto", " none ", "nobind")]
    assert words == [MaskWord.AUTO, MaskWord.NONE, MaskWord.NONE]


@pytest.mark.parametrize(("text", "marked", "message"), [
    ("0,99999999", "99999999", "^'99999999' is too large for a CPU number$"),
    ("1,x", "x", "^'x' is not a number$"), ("0--3", "-3", "^a number is negative$"),
    ("0-", "", "^a number is missing$"), ("3-1", "3-1", "^the range '3-1' is reversed$"),
    ("NONE", "NONE", "^the word 'none' must be lower case$"),
    ("0,nobind", "nobind", "^the word 'nobind' cannot be combined with other items$"),
    *((text, marked, ".") for text, marked in (
        ("", ""), ("0,,1", ","), ("0||1", "|"), ("0,1,", ""), ("node:0,core:7-4", "7-4"), ("-1", "-"),
        ("node:-1", "-"), ("0-7:-2", "-2"), ("0 1", "0 1"), ("0 - 3", "0 "), ("1.5", "1.5"), ("0-7:2/", ""),
        ("0-7:0", "0"), ("0-7:0/4", "0/4"), ("0-7:4/2", "4/2"), ("5:3", "5:3"), ("0-65536", "65536"),
        ("0xfg", "0xfg"), ("1,0x0", "0x0"), ("auto|0", "auto"), ("nod:0", "nod"), ("node:0.^core:0", "^core"),
        ("node:0:core:1", "0:core:1"), ("node", "node"), ("node:0.core", "core"), ("node:0.", ""),
        ("node:#0-#1", "#1"), ("9" * 5000, "9" * 5000), ("0x" + "f" * 30000, "0x" + "f" * 30000),
        ("xff,00000003", "xff"),
    )),
])  # fmt: skip
def test_errors_are_marked_and_say_what_is_wrong(text, marked, message):
    with pytest.raises(MaskError) as caught:
        parse_mask(text)
    assert text[slice(*caught.value.span)] == marked
    assert re.search(message, caught.value.message)


@pytest.mark.parametrize(("text", "canonical"), [
    (" 0 , 1,2 | 05", "0-2|5"), ("3,1,2", "3,1-2"), ("0,2,4", "0,2,4"), ("0,2,4,6", "0-6:2"),
    ("0xff,ffffffff", "0-39"), ("^3,^1-2,0-7", "0-7,^1-3"),
    ("^0-6:2", "all,^0-6:2"), ("^node:1 , ^core:0,^node:1,^8", "all,^8,^core:0,^node:1"),
    ("1,node:0,1-2,node:0", "1,node:0,2"),
    ("package:1 . l3:0-2:2 . core:0-9:2/8", "package:1.l3:0-2:2.core:0-9:2/8"),
    ("core:#0-8:2/8", "core:#0-8:2/8"), ("core:0-9:3/3", "core:0-9"),
])  # fmt: skip
def test_canonical_text(text, canonical):
    assert mask_text(parse_mask(text)) == canonical


def try_resolve(text, machine, **options):
    try:
        return resolve_mask(parse_mask(text), UsableCpus(machine=machine, free=machine.allowed), **options)[0]
    except MaskError:
        return None


@MORE
@given(masks(), machines())
def test_a_mask_reads_as_it_was_written_and_its_canonical_text_means_the_same(made, machine):
    mask = parse_mask(made[0])
    for part, expected in zip(mask.parts, made[1], strict=True):
        chains = [tuple((s.level, s.numbers, s.by_os_number) for s in item.chain) for item in part]
        assert [(item.excluded, item.cpus) for item in part] == [value[:2] for value in expected]
        assert chains == [value[2] for value in expected]
    text = mask_text(mask)
    assert parse_mask(text).canonical == mask.canonical
    assert mask_text(parse_mask(text)) == text
    assert not any(character.isspace() for character in text)
    for options in ({}, {"allow_partial": True}):
        assert try_resolve(text, machine, **options) == try_resolve(made[0], machine, **options)
