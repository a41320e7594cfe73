"""Records: like dataclasses, but faster to define."""

import pickle

import pytest

from ompbind.record import Record


class Point(Record):
    x: int
    y: int = 0

    def check(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


def test_fields_come_by_keyword_with_defaults_and_are_compared():
    assert Point(x=1).as_dict() == {"x": 1, "y": 0}
    assert repr(Point(x=1, y=2)) == "Point(x=1, y=2)"
    assert Point(x=1) == Point(x=1, y=0) != Point(x=2)
    assert len({Point(x=1), Point(x=1), Point(x=2)}) == 2
    assert pickle.loads(pickle.dumps(Point(x=3))) == Point(x=3)
    for values, wrong in (({}, "missing x"), ({"x": 1, "z": 2}, "unknown z")):
        with pytest.raises(TypeError, match=wrong):
            Point(**values)


def test_a_record_is_frozen_and_replace_makes_a_checked_copy():
    point = Point(x=1)
    with pytest.raises(AttributeError, match="immutable"):
        point.x = 2
    with pytest.raises(AttributeError, match="immutable"):
        del point.x
    assert point.replace(y=5) == Point(x=1, y=5)
    with pytest.raises(ValueError, match="negative"):
        point.replace(x=-1)
