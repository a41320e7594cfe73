"""Foreign text: numbers and secret values in it, and cleaned for terminals."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.errors import PositionError
from ompbind.text import (
    NAME_LIMIT,
    SECRET_WORDS,
    clean_line,
    clean_lines,
    clean_name,
    is_secret,
    mask_text,
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


def test_names_of_secrets_have_a_secret_word():
    assert all(map(is_secret, (*SECRET_WORDS, "HF_TOKEN", "PGPASSWORD", "api_key", "KEY_FILE", "--api-key")))
    others = ("TOKENIZERS_PARALLELISM", "KEYBOARD", "MONKEY", "PATH", "--max-tokens", "")
    assert not any(map(is_secret, others))


@pytest.mark.parametrize(("text", "masked"), [
    ("HF_TOKEN=a b", "HF_TOKEN=***"), ("env=A_KEY=a b", "env=A_KEY=***"), ("--token=a b", "--token=***"),
    ("env SECRET=a nice", "env SECRET=*** nice"), ("env SECRET='a b' nice", "env SECRET=*** nice"),
    ("run SECRET='a b", "run SECRET=***"), ("'A_KEY=a b' is wrong", "'A_KEY=***' is wrong"),
    ("app --api-key a --port 1", "app --api-key *** --port 1"), ("app --token --x", "app --token --x"),
    ('curl -H "Authorization: Bearer a" u', 'curl -H "Authorization: ***" u'),
    ("curl -H 'X-Api-Key: a b' u", "curl -H 'X-Api-Key: ***' u"), ('"Bearer a', '"Bearer ***'),
    ("http://user:a@host/", "http://***@host/"), ("https://a@host", "https://***@host"),
    *((text, text) for text in ("", "KEYS=a", "A_KEY is secret", "http://host/a@b", "sort --keys 2")),
])  # fmt: skip
def test_secret_values_are_masked_in_texts(text, masked):
    assert mask_text(text) == masked
    error = PositionError(text, text=f"{text}{{x}}", span=(len(text), len(text) + 3))
    assert (error.message, len(error.text), error.text[-3:]) == (masked, len(text) + 3, "{x}")
    assert ("*" in masked) == ("*" in error.text)


@pytest.mark.parametrize(
    "part", ["a_", "//", "-", "_KEY", "--KEY  ", "a=", "KEY='", "'KEY=", "KEY: ", "bearer ", " "]
)
def test_long_texts_are_masked_in_linear_time(part):
    """Other users choose the command lines of their processes."""
    began = time.process_time()
    mask_text("KEY " + part * 50_000)
    assert time.process_time() - began < 2
