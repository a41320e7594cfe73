"""The texts of --vary: keys, values and their positions, and all combinations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.bench.candidates import LIMIT, make_combinations, parse_variation
from ompbind.errors import PositionError, RequestError


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("smt=1,2", "smt", ["1", "2"]),
        ("smt = 1 , all", "smt", ["1", "all"]),
        ("mask=0,2;1,3", "mask", ["0,2", "1,3"]),
        ("mask=0-1|2-3;0|1", "mask", ["0-1|2-3", "0|1"]),
        ("mask=0,2;", "mask", ["0,2"]),
        ("env=A=1,A=2", "env", ["A=1", "A=2"]),
        ("preload=none,tcmalloc", "preload", ["none", "tcmalloc"]),
    ],
)
def test_values(text, key, values):
    found = parse_variation(text)
    assert [(value.key, value.text) for value in found] == [(key, value) for value in values]
    assert [text[slice(*value.span)] for value in found] == values


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("", "the option is missing", ""),
        ("smt", "smt has no values", "smt"),
        ("=1,2", "the option is missing", ""),
        ("smt=", "a value of smt is missing", ""),
        ("smt=1,,2", "a value of smt is missing", ""),
        ("mask=;0", "a value of mask is missing", ""),
        ("smt=1,2, 1", "smt has the value 1 twice", "1"),
    ],
)
def test_wrong_texts(text, message, marked):
    with pytest.raises(PositionError) as error:
        parse_variation(text)
    assert error.value.message == message
    assert text[slice(*error.value.span)] == marked


@given(st.lists(st.text("ab=|.", min_size=1), min_size=1, unique=True), st.sampled_from([",", ";"]))
def test_every_value_is_found_where_it_is(values, separator):
    text = f"key={separator.join(values)}{';' if separator == ';' else ''}"
    found = parse_variation(text)
    assert [value.text for value in found] == values
    assert [text[slice(*value.span)] for value in found] == values


def test_combinations_vary_the_last_option_fastest():
    found = make_combinations([("smt", ("1", "2")), ("bind", ("rank", "thread"))])
    assert found == (
        (("smt", "1"), ("bind", "rank")),
        (("smt", "1"), ("bind", "thread")),
        (("smt", "2"), ("bind", "rank")),
        (("smt", "2"), ("bind", "thread")),
    )
    assert make_combinations([]) == ()


def test_too_many_combinations_are_refused_before_they_are_made():
    many = tuple(map(str, range(1000)))
    with pytest.raises(RequestError, match=f"1000000000 combinations are more than the limit of {LIMIT}"):
        make_combinations([("threads", many), ("cores", many), ("reserve", many)])
    assert len(make_combinations([("threads", many[:LIMIT])])) == LIMIT
