"""Foreign text: numbers in it, and cleaned for terminals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.text import (
    NAME_LIMIT,
    clean_line,
    clean_lines,
    clean_name,
    remove_escape_sequences,
    whole_number,
)


@pytest.mark.parametrize(("text", "line", "kept"), [
    ("as it is", "as it is", "as it is"), ("\x1b[2J\a", "?[2J?", "?[2J?"),
    ("a\tb\nc\rd", "a?b?c?d", "a\tb\nc\rd"), ("\x9b\u202e\ufeff", "???", "???"),
    ("\u00a0\u2028", "??", "\u00a0\u2028"), ("é漢", "é漢", "é漢"),
])  # fmt: skip
def test_characters_that_are_not_printable_are_replaced(text, line, kept):
    assert (clean_line(text), clean_lines(text)) == (line, kept)


@given(st.text())
def test_lines_keep_their_length_and_names_are_cut(text):
    assert len(clean_line(text)) == len(clean_lines(text)) == len(text)
    assert clean_line(text).isprintable()
    assert clean_name(text * NAME_LIMIT) == clean_line(text * NAME_LIMIT)[:NAME_LIMIT]


@pytest.mark.parametrize(("text", "plain"), [
    ("no sequence [1m", "no sequence [1m"), ("\x1b[1;32mgreen\x1b[m\x1b[K", "green"),
    ("\x1b]8;;http://host\x1b\\a link\x1b]8;;\x1b\\ \x1b]0;title\a.", "a link ."),
    ("\x1b(Btext\x1b7", "text"), ("\x1b]0;no end\nnext\a", "0;no end\nnext\a"), ("cut \x1b[3", "cut 3"),
])  # fmt: skip
def test_escape_sequences_are_removed_within_a_line(text, plain):
    assert remove_escape_sequences(text) == plain


@pytest.mark.parametrize(("text", "limit", "number"), [
    ("0", 1, 0), ("007", 8, 7), ("65535", 1 << 16, 65535), ("65536", 1 << 16, None), ("1", 1, None),
    ("9" * 19, 1 << 62, None), ("0" * 19 + "1", 2, 1), ("1" * 5000, 1 << 62, None), (None, 2, None),
    *((text, 1 << 62, None) for text in ("", " 1", "1\n", "-1", "+1", "1_0", "1e2", "²", "½", "٣", "x")),
])  # fmt: skip
def test_a_whole_number_has_ascii_digits_and_a_limit(text, limit, number):
    assert whole_number(text, limit) == number
