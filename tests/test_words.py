"""Words behave as the enumerations do that type checkers take them for."""

import copy
import json
import pickle
from enum import StrEnum

import pytest

from ompbind.planning.request import Bind
from ompbind.words import Words

MEMBERS = {"RANK": "rank", "CORE": "core", "NONE": "none"}


class Ours(Words):
    RANK = "rank"
    CORE = "core"
    NONE = "none"

    @property
    def loud(self):
        return self.upper()


class Theirs(StrEnum):
    RANK = "rank"
    CORE = "core"
    NONE = "none"

    @property
    def loud(self):
        return self.upper()


@pytest.mark.parametrize(
    "look",
    [
        list,
        len,
        lambda kind: kind("core") is kind.CORE,
        lambda kind: kind(kind.CORE) is kind.CORE,
        lambda kind: [str(one) for one in kind],
        lambda kind: f"{kind.NONE} {kind.RANK:>6}",
        lambda kind: json.dumps({kind.RANK: kind.CORE}),
        lambda kind: {kind.RANK: 1}["rank"],
        lambda kind: (kind.RANK == "rank", kind.RANK != kind.CORE, hash(kind.RANK) == hash("rank")),
        lambda kind: (kind.RANK.name, kind.RANK.value, kind.RANK.loud),
        lambda kind: (type(str(kind.RANK)), isinstance(kind.RANK, kind), isinstance("rank", kind)),
        lambda kind: "core" in [*kind],
        lambda kind: copy.deepcopy(kind.CORE) is copy.copy(kind.CORE) is kind.CORE,
        lambda kind: pickle.loads(pickle.dumps(kind.CORE)) is kind.CORE,
        lambda kind: sorted(kind),
    ],
)
def test_they_are_as_the_standard_ones(look):
    assert look(Ours) == look(Theirs)


@pytest.mark.parametrize("text", ["", "RANK", "nonsense", None, 3, []])
def test_other_texts_are_none_of_them(text):
    for kind in (Ours, Theirs):
        with pytest.raises(ValueError, match=f"is not a valid {kind.__name__}"):
            kind(text)


def test_nobody_changes_them():
    with pytest.raises(AttributeError):
        Ours.RANK = "other"
    with pytest.raises(AttributeError):
        Ours.RANK.extra = 1
    assert repr(Bind.RANK) == "Bind.RANK"
    assert "core" in Bind
    assert "nonsense" not in Bind
