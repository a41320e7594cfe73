"""`WordEnum` and `NumberEnum` behave as `StrEnum` and `IntEnum`."""

import copy
import json
import pickle
from enum import IntEnum, StrEnum

import pytest

from ompbind.enums import NumberEnum, WordEnum
from ompbind.openmp.runtimes import OmpRuntime


class Word(WordEnum):
    """A text of the class, which is no member."""

    ONE = "one"
    OTHER = "two"

    @property
    def label(self):
        return f"the {self}"

    @classmethod
    def last(cls):
        return cls.OTHER


class Number(NumberEnum):
    LOW = 1
    HIGH = 5


class StandardWord(StrEnum):
    ONE = "one"
    OTHER = "two"


class StandardNumber(IntEnum):
    LOW = 1
    HIGH = 5


PAIRS = [(Word, StandardWord), (Number, StandardNumber)]


@pytest.mark.parametrize(("ours", "standard"), PAIRS)
def test_they_have_the_same_members_in_the_same_order(ours, standard):
    def describe(members):
        return [(member.name, member.value, str(member), f"{member:>4}", hash(member)) for member in members]

    assert describe(ours) == describe(standard)
    assert describe(reversed(ours)) == describe(reversed(standard))
    assert len(ours) == len(standard) == 2
    assert json.dumps(list(ours)) == json.dumps(list(standard))
    assert {type(member.value) for member in ours} <= {str, int}


@pytest.mark.parametrize("kind", [Word, Number, OmpRuntime])
def test_each_value_has_one_member(kind):
    for member in kind:
        assert kind(member.value) is member
        assert kind(member) is member
        assert pickle.loads(pickle.dumps(member)) is member
        assert copy.deepcopy(member) is member
        assert isinstance(member, kind)
        assert member in kind
        assert member.value in kind


@pytest.mark.parametrize("kind", [Word, StandardWord])
def test_other_values_are_refused(kind):
    assert "three" not in list(kind)
    with pytest.raises(ValueError, match="'three' is not a valid "):
        kind("three")


def test_classes_have_properties_and_methods():
    assert Word.ONE.label == "the one"
    assert Word.last() is Word.OTHER
    assert Word.ONE == "one"
    assert Word.ONE.label not in list(Word)


def test_numbers_can_be_compared():
    assert Number.LOW < Number.HIGH
    assert max(Number) is Number.HIGH
