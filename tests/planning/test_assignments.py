"""NAME=VALUE of --env, and the lines of --env-file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.errors import OptionError, PositionError
from ompbind.planning.placeholders import fill, parse_assignment, parse_env_file


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("A=1", ("A", "1")),
        ("A=", ("A", "")),
        ("A=b=c", ("A", "b=c")),
        ("PORT={rank+8000}", ("PORT", "{rank+8000}")),
        ('CFG={"a":{"b":1}}', ("CFG", '{"a":{"b":1}}')),
    ],
)
def test_assignments(text, pair):
    assert parse_assignment(text) == pair


@pytest.mark.parametrize("text", ["A", "=1", "", "A=\0", "1A=1", "a.b=1"])
def test_text_that_is_not_an_assignment_is_refused(text):
    with pytest.raises(OptionError):
        parse_assignment(text)


def test_a_wrong_placeholder_has_its_position_in_the_whole_text():
    with pytest.raises(PositionError, match=r"unknown placeholder \{foo\}") as caught:
        parse_assignment("P={foo}")
    assert (caught.value.text, caught.value.span) == ("P={foo}", (2, 7))


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        ("A=1\nB=2", [("A", "1"), ("B", "2")]),
        ("\n  \t\n# A=1\n  # B=2\n", []),
        ("\ufeffA=1\r\nB=2\r\n", [("A", "1"), ("B", "2")]),
        (" A=1", [("A", "1")]),
        ("A= 1 # one ", [("A", " 1 # one ")]),
        ("A=\"1\"\nB='2'", [("A", '"1"'), ("B", "'2'")]),
        ("A=", [("A", "")]),
        ("A=b=c\\n", [("A", "b=c\\n")]),
        ("HOME\nMISSING\n", [("HOME", "/home/me")]),
        ("A=\u00e9\u2028B", [("A", "\u00e9\u2028B")]),
        ("A=1\nA=2", [("A", "1"), ("A", "2")]),
        ("PORT={rank+8000}", [("PORT", "{rank+8000}")]),
    ],
)
def test_lines_of_a_file(text, pairs):
    assert list(parse_env_file(text, "f", {"HOME": "/home/me"})) == pairs


def test_a_value_of_the_caller_is_not_filled():
    ((name, value),) = parse_env_file("TEMPLATE", "f", {"TEMPLATE": "{rank} {foo} {{size}}"})
    assert (name, fill(value, {"rank": 0})) == ("TEMPLATE", "{rank} {foo} {{size}}")


@pytest.mark.parametrize(
    ("line", "marked", "message"),
    [
        ("export A=1", "export A", "f, line 2: 'export A' is not the name of a variable"),
        ("=1", "=", "f, line 2: '' is not the name of a variable"),
        ("  A B", "A B", "f, line 2: 'A B' is not the name of a variable"),
        ("a.b=1", "a.b", "f, line 2: 'a.b' is not the name of a variable"),
        ("A =1", "A ", "f, line 2: 'A ' is not the name of a variable"),
        ("A=x{foo}", "{foo}", "f, line 2: unknown placeholder {foo}"),
        ("A=x\0", "\0", "f, line 2: a value cannot contain a null character"),
    ],
)
def test_a_wrong_line_is_an_error_with_file_line_and_position(line, marked, message):
    with pytest.raises(PositionError) as caught:
        parse_env_file(f"# comment\n{line}\nB=1", "f", {})
    error = caught.value
    assert (error.message, error.text, error.text[slice(*error.span)]) == (message, line, marked)


@given(st.text('Ab1_=# \t\n\r{}"$rank\0\u00e9', max_size=60))
def test_any_file_is_read_or_an_error_with_a_position(text):
    try:
        pairs = parse_env_file(text, "f", {"A": "1"})
    except PositionError as error:
        assert error.message.startswith("f, line ")
        assert 0 <= error.span[0] < error.span[1] <= max(1, len(error.text))
        assert error.text in text
    else:
        assert all(name.isidentifier() and "\0" not in value for name, value in pairs)
