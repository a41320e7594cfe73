"""Placements as variables: only text that every runtime reads, nothing that beats it left in place."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.openmp.places import TEXT_LIMIT, places_text
from ompbind.openmp.variables import DEFEATING, THREAD_COUNTS, find_inherited, make_openmp_variables
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Bind, ProcBind, Request
from tests.machines import Shape, make_machine

DUAL = make_machine(Shape(packages=2, cores=4, smt=2))


def variables(**options):
    request = Request(ranks=2, **options)
    return make_openmp_variables(make_plan(DUAL, request).placements[1], request)


@pytest.mark.parametrize(
    ("options", "places", "proc_bind"),
    [
        ({}, "{4,5,6,7}", "true"),
        ({"bind": Bind.THREAD}, "{4,5,6,7},{5},{6},{7}", "close"),
        ({"bind": Bind.CORE, "smt": 2}, "{4,5,6,7,12,13,14,15},{5,13},{6,14},{7,15}", "close"),
        ({"bind": Bind.EXACT, "proc_bind": ProcBind.SPREAD}, "{4},{5},{6},{7}", "spread"),
        ({"bind": Bind.NONE}, None, "false"),
    ],
)
def test_places_and_binding_belong_together(options, places, proc_bind):
    made = variables(**options)
    assert (made["OMP_PLACES"], made["OMP_PROC_BIND"]) == (places, proc_bind)


def test_every_pool_is_told_its_threads_and_every_rival_is_cleared():
    made = variables()
    assert {made[name] for name in THREAD_COUNTS} == {"4"}
    assert {name for name, value in made.items() if value is None} == set(DEFEATING) - {
        "OMP_PLACES",
        "OMP_PROC_BIND",
    }
    assert variables(bind=Bind.EXACT)["KMP_AFFINITY"] == "reset"
    assert "" not in made.values()


@given(st.lists(st.sets(st.integers(0, 4095), min_size=1), min_size=1, max_size=300))
def test_place_text_is_short_and_says_what_it_should(sets):
    places = [CpuSet(one) for one in sets]
    text = places_text(places)
    if text is None:
        assert sum(len(list(place.runs())) for place in places) > TEXT_LIMIT // 14
        return
    assert len(text) <= TEXT_LIMIT
    assert re.fullmatch(r"\{[0-9,:]+\}(,\{[0-9,:]+\})*", text)
    assert [_numbers(place) for place in re.findall(r"\{(.*?)\}", text)] == [list(place) for place in places]


def _numbers(text):
    """Read a place as the OpenMP specification says: numbers, or start:length."""
    found = []
    for item in text.split(","):
        start, _, length = item.partition(":")
        found.extend(range(int(start), int(start) + int(length or 1)))
    return found


def test_long_places_are_written_as_runs():
    assert places_text([CpuSet(range(2000))]) == "{0:2000}"
    assert places_text([CpuSet(range(100))]).startswith("{0,1,2,")


def test_the_variables_that_measured_runtimes_need_are_among_them():
    told = {
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "NUMEXPR_MAX_THREADS",
    }
    cleared = {
        "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET", "KMP_TOPOLOGY_METHOD", "KMP_ALL_THREADS",
        "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "GOTO_NUM_THREADS",
    }  # fmt: skip
    assert told <= set(THREAD_COUNTS)
    assert cleared <= set(DEFEATING)


def test_only_what_changes_is_news():
    base = {"OMP_NUM_THREADS": "4", "GOMP_CPU_AFFINITY": "0", "MKL_NUM_THREADS": "9", "HOME": "/"}
    found = find_inherited(base, variables())
    assert [(one.name, one.before, one.after) for one in found] == [
        ("GOMP_CPU_AFFINITY", "0", None),
        ("MKL_NUM_THREADS", "9", "4"),
    ]
