"""Foreign text, cleaned for terminals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.text import NAME_LIMIT, clean_line, clean_lines, clean_name


@pytest.mark.parametrize(
    ("text", "line", "kept"),
    [
        ("as it is", "as it is", "as it is"),
        ("\x1b[2J\a", "?[2J?", "?[2J?"),
        ("a\tb\nc\rd", "a?b?c?d", "a\tb\nc\rd"),
        ("\x9b\u202e\ufeff", "???", "???"),
        ("\u00a0\u2028", "??", "\u00a0\u2028"),
        ("é漢", "é漢", "é漢"),
    ],
)
def test_characters_that_are_not_printable_are_replaced(text, line, kept):
    assert (clean_line(text), clean_lines(text)) == (line, kept)


@given(st.text())
def test_lines_keep_their_length_and_names_are_cut(text):
    assert len(clean_line(text)) == len(clean_lines(text)) == len(text)
    assert clean_line(text).isprintable()
    assert clean_name(text) == clean_line(text)[:NAME_LIMIT]
