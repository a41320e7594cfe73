"""Records as JSON: every session can be read back, also from other versions."""

import json
from enum import StrEnum
from types import NoneType, UnionType
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.bench.records import Conclusion, Metric, Run, Session
from ompbind.bench.results import make_json, make_record
from tests.long import examples

PLAIN = {
    str: st.text(),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
}


def values_of(hint):
    """Return a strategy for values of the type of a field."""
    if hint in PLAIN:
        return PLAIN[hint]
    arguments = get_args(hint)
    if get_origin(hint) is UnionType:
        return st.none() | values_of(next(choice for choice in arguments if choice is not NoneType))
    if get_origin(hint) is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if get_origin(hint) is tuple:
        return st.tuples(*map(values_of, arguments))
    if issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    hints = get_type_hints(hint)
    return st.fixed_dictionaries({name: values_of(hints[name]) for name in hint.fields}).map(
        lambda fields: hint(**fields)
    )


@pytest.mark.parametrize("kind", [Session, Conclusion])
def test_records_are_read_back(kind):
    @examples(0.5)
    @given(values_of(kind))
    def check(record):
        assert make_record(kind, json.loads(json.dumps(make_json(record)))) == record

    check()


def test_fields_of_other_versions_are_ignored_or_have_their_defaults():
    assert make_record(Metric, {"name": "x", "colour": "red"}) == Metric(name="x")


RUN = {"candidate": "a", "number": 0, "round": 1, "started": 1}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"candidate": 3}, "Run.candidate: unexpected value 3"),
        ({"values": ["fast"]}, "Run.values: unexpected value 'fast'"),
        ({"values": 1.0}, "Run.values: unexpected value 1.0"),
        ({"values": [float("inf")]}, "Run.values: unexpected value inf"),
        ({"user_s": float("nan")}, "Run.user_s: unexpected value nan"),
        ({"wall_s": [10**400]}, "Run.wall_s: unexpected value 1000"),
        ({"number": True}, "Run.number: unexpected value True"),
        ({"status": "great"}, "Run.status: 'great'"),
        ({"conditions": {"other_runs": None}}, "Conditions.other_runs: unexpected value None"),
        ({"conditions": 5}, "Run.conditions: Conditions is no object"),
    ],
)
def test_wrong_values_are_named(change, wrong):
    with pytest.raises(ValueError, match=wrong):
        make_record(Run, {**RUN, **change})


def test_missing_values_are_named():
    assert make_record(Run, RUN).started == 1.0
    with pytest.raises(ValueError, match="has no candidate, started"):
        make_record(Run, {name: RUN[name] for name in ("number", "round")})
