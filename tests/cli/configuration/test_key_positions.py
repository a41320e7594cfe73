"""Positions of keys in TOML texts: the key at each position is the key of the parser."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cli.configuration.key_positions import find_positions
from tests.long import examples

TEXT = "\n".join(
    [
        "",
        '# a comment with [brackets] and "quotes',
        "[defaults]",
        'mask = "0-3"  # = "x"',
        "\"smt\" = 'all'",
        "list = [",
        '  "a = b", # ]',
        '  """]',
        "[not.a.table]",
        '""",',
        "]",
        '[preset."big one".env]',
        'A = """"x = 1""""',
        "B = '''",
        "[no]",
        "key = 2'''",
        "dotted . key = 1",
        "",
    ]
)

EXPECTED = {
    ("defaults",): (3, "defaults"),
    ("defaults", "mask"): (4, "mask"),
    ("defaults", "smt"): (5, '"smt"'),
    ("defaults", "list"): (6, "list"),
    ("preset", "big one", "env"): (12, 'preset."big one".env'),
    ("preset", "big one", "env", "A"): (13, "A"),
    ("preset", "big one", "env", "B"): (14, "B"),
    ("preset", "big one", "env", "dotted", "key"): (17, "dotted . key"),
}


def test_keys_are_found_at_their_lines():
    assert tomllib.loads(TEXT)
    lines = TEXT.split("\n")
    found = {
        path: (where.line, lines[where.line - 1][where.start : where.stop])
        for path, where in find_positions(TEXT).items()
    }
    assert found == EXPECTED


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "[a]\n", "a=1"])
def test_short_texts(text):
    assert len(find_positions(text)) == len(tomllib.loads(text))


def test_a_key_that_occurs_twice_has_no_position():
    assert find_positions("[[a]]\nb = 1\n[[a]]\nb = 2\nc = 1\n").keys() == {("a", "c")}


NAMES = st.sampled_from(["a", "b", '"c d"', "'e.f'", "1", '"=["', '"\\u0041"'])
VALUES = st.sampled_from(
    ["1", '"x"', "'y'", '"""z\n[q]\n"""', "[1,\n[2]]", '{ k = "]" }', '"\\"#"', "1979-05-27", "''''''"]
)
LINES = st.one_of(
    st.tuples(NAMES, VALUES).map(" = ".join),
    st.lists(NAMES, min_size=1, max_size=3).map(lambda names: f"[ {' . '.join(names)} ]"),
    st.just("# [a] b = 1"),
)


def get_value(document, path):
    for name in path:
        document = document[name]
    return document


@examples(5)
@given(st.lists(LINES, max_size=8).map("\n".join))
def test_every_position_is_that_of_a_key(text):
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = text.split("\n")
    for path, where in find_positions(text).items():
        get_value(document, path)  # no KeyError
        assert lines[where.line - 1][where.start : where.stop]
