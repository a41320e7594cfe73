"""The binding as variables: every runtime reads them, and variables that override them are removed."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.openmp.binding import Bind, Binding, ProcBind, make_places
from ompbind.openmp.variables import (
    OVERRIDING_VARIABLES,
    THREAD_COUNTS,
    find_overridden_variables,
    make_openmp_variables,
)

CPUS = (4, 5, 6, 7)
EIGHT = (*CPUS, 12, 13, 14, 15)
CORES = tuple(CpuSet((cpu, cpu + 8)) for cpu in CPUS)


def variables(cpus=CPUS, bind=Bind.RANK, **binding):
    return make_openmp_variables(cpus, make_places(cpus, CORES, bind)[1], 4, Binding(mode=bind, **binding))


@pytest.mark.parametrize(
    ("options", "places", "proc_bind"),
    [
        ({}, "{4,5,6,7}", "true"),
        ({"bind": Bind.THREAD}, "{4,5,6,7},{5},{6},{7}", "close"),
        (
            {"bind": Bind.CORE, "cpus": (*CPUS, 12, 13, 14, 15)},
            "{4,5,6,7,12,13,14,15},{5,13},{6,14},{7,15}",
            "close",
        ),
        ({"bind": Bind.EXACT, "proc_bind": ProcBind.SPREAD}, "{4},{5},{6},{7}", "spread"),
        ({"bind": Bind.NONE}, None, "false"),
    ],
)
def test_places_and_proc_bind_are_set_together(options, places, proc_bind):
    made = variables(**options)
    assert (made["OMP_PLACES"], made["OMP_PROC_BIND"]) == (places, proc_bind)


def test_every_pool_gets_its_threads_and_overriding_variables_are_removed():
    made = variables()
    assert {made[name] for name in THREAD_COUNTS} == {"4"}
    assert {name for name, value in made.items() if value is None} == set(OVERRIDING_VARIABLES) - {
        "OMP_PLACES",
        "OMP_PROC_BIND",
    }
    assert variables(bind=Bind.EXACT, reset=True)["KMP_AFFINITY"] == "reset"
    assert "" not in made.values()


def test_variables_that_programs_are_known_to_read_are_included():
    counts = {
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
        "NUMEXPR_MAX_THREADS", "LLAMA_ARG_THREADS", "JULIA_NUM_THREADS", "DOTNET_PROCESSOR_COUNT",
        "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS",
        "OPENCV_FOR_THREADS_NUM", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS",
    }  # fmt: skip
    cleared = {
        "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET", "KMP_TOPOLOGY_METHOD", "KMP_ALL_THREADS",
        "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "GOTO_NUM_THREADS",
    }  # fmt: skip
    assert counts <= set(THREAD_COUNTS)
    assert cleared <= set(OVERRIDING_VARIABLES)


def test_only_changed_variables_are_reported():
    base = {"OMP_NUM_THREADS": "4", "GOMP_CPU_AFFINITY": "0", "MKL_NUM_THREADS": "9", "HOME": "/"}
    found = find_overridden_variables(base, variables())
    assert list(found.items()) == [("GOMP_CPU_AFFINITY", None), ("MKL_NUM_THREADS", "4")]
