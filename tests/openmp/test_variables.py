"""The binding as variables, and the text of places, which every runtime reads in the same way."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.openmp import binding
from ompbind.openmp.binding import TEXT_LIMIT, Bind, ProcBind, make_places, parse_places, render_places
from ompbind.openmp.runtimes import OmpRuntime, find_aborting_pair, find_intercepting_pair
from ompbind.openmp.variables import OVERRIDING_VARIABLES, THREAD_COUNTS, make_openmp_variables

CPUS = (4, 5, 6, 7)
EIGHT = (*CPUS, 12, 13, 14, 15)
CORES = tuple(CpuSet((cpu, cpu + 8)) for cpu in CPUS)


def variables(cpus=CPUS, bind=Bind.RANK, **options):
    made = binding.Binding(mode=bind, **options)
    return make_openmp_variables(cpus, make_places(cpus, CORES, bind)[1], 4, made)


@pytest.mark.parametrize(("options", "places", "proc_bind"), [
    ({}, "{4,5,6,7}", "true"), ({"bind": Bind.THREAD}, "{4,5,6,7},{5},{6},{7}", "close"),
    ({"bind": Bind.CORE, "cpus": EIGHT}, "{4,5,6,7,12,13,14,15},{5,13},{6,14},{7,15}", "close"),
    ({"bind": Bind.EXACT, "proc_bind": ProcBind.SPREAD}, "{4},{5},{6},{7}", "spread"),
    ({"bind": Bind.NONE}, None, "false"),
])  # fmt: skip
def test_places_and_proc_bind_are_set_together(options, places, proc_bind):
    made = variables(**options)
    assert (made["OMP_PLACES"], made["OMP_PROC_BIND"]) == (places, proc_bind)


def test_every_pool_gets_its_threads_and_overriding_variables_are_removed():
    made = variables()
    assert {made[name] for name in THREAD_COUNTS} == {"4"}
    removed = {name for name, value in made.items() if value is None}
    assert removed == {*OVERRIDING_VARIABLES} - {"OMP_PLACES", "OMP_PROC_BIND"}
    assert {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET", "OMP_THREAD_LIMIT"} <= removed
    assert {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"} <= {*THREAD_COUNTS}
    assert variables(bind=Bind.EXACT, reset=True)["KMP_AFFINITY"] == "reset"


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


def test_conflicts_are_found_from_the_row_of_either_runtime_and_versions_differ():
    gomp, llvm, intel = OmpRuntime.GOMP, OmpRuntime.LLVM, OmpRuntime.INTEL
    assert find_intercepting_pair({gomp, llvm, intel}) == (gomp, llvm)
    assert find_aborting_pair({gomp, llvm, intel}) == (llvm, intel, "OMP: Error #15")
    assert find_aborting_pair({gomp, intel, None}) is find_intercepting_pair({llvm, intel}) is None
    assert not intel.runs_on("aarch64")
    assert [gomp.resets(None), gomp.forks_safely(None)] == [False, True]
    assert [runtime.resets(None) and runtime.forks_safely(None) for runtime in (llvm, intel)] == [True, True]
    versions = [(llvm.resets(version), llvm.forks_safely(version)) for version in (14, 15, 16)]
    assert versions == [(False, False), (True, False), (True, True)]
