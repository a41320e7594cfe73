"""The text of places, which every runtime reads in the same way."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.openmp.binding import TEXT_LIMIT, parse_places, render_places


def numbers(text):
    """Parse a place as the OpenMP specification defines it: numbers, or start:length."""
    found = []
    for item in text.split(","):
        start, _, length = item.partition(":")
        found.extend(range(int(start), int(start) + int(length or 1)))
    return found


@given(st.lists(st.sets(st.integers(0, 4095), min_size=1), min_size=1, max_size=300))
def test_the_text_of_places_is_short_and_correct_and_can_be_read(sets):
    places = [CpuSet(cpus) for cpus in sets]
    text = render_places(places)
    if text is None:
        assert sum(len(list(place.ranges())) for place in places) > TEXT_LIMIT // 14
        return
    assert len(text) <= TEXT_LIMIT
    assert re.fullmatch(r"\{[0-9,:]+\}(,\{[0-9,:]+\})*", text)
    assert [numbers(place) for place in re.findall(r"\{(.*?)\}", text)] == [list(place) for place in places]
    assert parse_places(text) == tuple(places)


@pytest.mark.parametrize("text", ["", "cores", "0,1", "{0-3}", "{0}:4", "{0},!{1}", "{0:2:4}", "{99999999}"])
def test_other_forms_of_places_are_not_read(text):
    assert parse_places(text) is None
