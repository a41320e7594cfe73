"""Which numbers of threads ranks get as variables, and how processes of a rank divide them."""

import pytest

from ompbind.commands.environment import make_thread_variables
from ompbind.errors import RequestError
from ompbind.openmp.binding import Bind
from ompbind.openmp.variables import MASK_COUNTS, THREAD_COUNTS
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Compat, Request
from ompbind.programs.command import Workload
from tests.machines import Shape, make_machine

MACHINE = make_machine(Shape(packages=2, cores=4, smt=2))
PYTHON = Workload(program="/usr/bin/python3", python="/usr/bin/python3")


def counts(machine=MACHINE, **options):
    """The variables for numbers of threads of rank 0, those that are not set with None."""
    plan = make_plan(machine, Request(**{"ranks": 2, "workload": PYTHON, **options}))
    variables = make_thread_variables(plan, 0)
    return {name: variables[name] for name in THREAD_COUNTS}, plan


@pytest.mark.parametrize("options", [
    {}, {"bind": Bind.NONE}, {"workload": Workload(program="/usr/bin/uv", opaque=True)},
    {"machine": MACHINE.replace(quota=8.0)},
])  # fmt: skip
def test_libraries_of_python_count_the_cpus_of_the_mask(options):
    found, plan = counts(**options)
    assert {name for name, value in found.items() if value is None} == {*MASK_COUNTS}
    assert found["LOKY_MAX_CPU_COUNT"] == str(len(plan.placements[0].cpuset))
    assert "(-t sets the variables)" in " ".join(note.text for note in plan.notes)


@pytest.mark.parametrize("options", [
    {"workload": None}, {"workload": Workload(program="/bin/sh", opaque=True)}, {"threads": 4},
    {"service_cores": 1}, {"smt": "all"}, {"bind": Bind.THREAD}, {"machine": MACHINE.replace(quota=3.0)},
    {"machine": MACHINE.replace(bindable=False)}, {"compat": Compat(framework="vllm")},
])  # fmt: skip
def test_the_number_is_set_where_the_mask_does_not_give_it(options):
    found, plan = counts(**options)
    assert {*found.values()} == {str(plan.placements[0].threads)}
    is_python = not {"workload", "compat"} & options.keys() and plan.placements[0].threads > 1
    assert any("(--processes-per-rank divides" in note.text for note in plan.notes) == is_python
    assert "(-t sets the variables)" not in " ".join(note.text for note in plan.notes)


@pytest.mark.parametrize(("options", "each"), [
    ({"processes_per_rank": 2}, "2"), ({"processes_per_rank": 3}, "1"), ({"processes_per_rank": 5}, "1"),
    ({"processes_per_rank": 2, "threads": 3, "workload": None}, "1"),
])  # fmt: skip
def test_processes_of_a_rank_divide_its_threads(options, each):
    found, plan = counts(**options)
    processes = str(options["processes_per_rank"])
    of_processes = dict.fromkeys(("LOKY_MAX_CPU_COUNT", "PYTHON_CPU_COUNT"), processes)
    assert found == dict.fromkeys(THREAD_COUNTS, each) | of_processes
    too_many = "5 processes are more than the threads of ranks 0-1" in " ".join(n.text for n in plan.notes)
    assert too_many == (options["processes_per_rank"] > 4)


def test_processes_that_cannot_divide_threads_are_refused():
    with pytest.raises(RequestError, match="would bind their threads to the same places"):
        counts(processes_per_rank=2, bind=Bind.THREAD)
