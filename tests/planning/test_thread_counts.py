"""The threads of ranks: under a CPU quota, as variables, and divided among processes of a rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.commands.environment import make_thread_variables
from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError
from ompbind.machine.model import TaskLimit
from ompbind.masks.mask import parse_mask
from ompbind.openmp.binding import Bind
from ompbind.openmp.variables import MASK_COUNTS, THREAD_COUNTS
from ompbind.planning.planner import make_plan, make_thread_counts
from ompbind.planning.request import Compat, Request, Sharing
from ompbind.programs.command import Workload
from tests.long import examples
from tests.machines import Shape, make_machine

EIGHT = Shape(packages=2, cores=4)


@examples(1)
@given(st.lists(st.integers(1, 64), min_size=1, max_size=40), st.floats(0.01, 500))
def test_threads_are_within_the_quota_and_equal_for_equal_ranks(cpus, quota):
    threads = make_thread_counts(cpus, quota)
    assert sum(threads) <= max(quota, len(cpus))
    shares = [max(1, int(quota * own / sum(cpus))) for own in cpus]
    for number, own, share in zip(threads, cpus, shares, strict=True):
        assert 1 <= number <= min(own, share)
    assert len(set(zip(cpus, threads, strict=True))) == len(set(cpus))
    assert sum(threads) > min(sum(cpus), quota) - len(cpus)  # less than one CPU per rank is not used
    if quota * min(cpus) >= sum(cpus):  # no rank has more than its share
        assert threads == [min(own, share) for own, share in zip(cpus, shares, strict=True)]


@pytest.mark.parametrize(("quota", "options", "expected"), [
    (None, {"ranks": 4}, {}), (1.0, {}, {"quota": "is 1: threads per rank limited to 1"}),
    (0.5, {}, {"quota": "is 0.5: threads per rank limited to 1", "quota-ranks": "too little for 1 rank: it"}),
    (0.5, {"cores": 1}, {"quota-ranks": "is 0.5, which is too little for 1 rank: it will be throttled"}),
    (3.0, {"ranks": 2}, {"quota": "is 3: threads per rank limited to 1"}),
    (1.0, {"ranks": 2}, {"quota-ranks": "is 1, which is too little for 2 ranks: they will be throttled"}),
    (4.0, {"ranks": 2, "threads": 2}, {}), (1.0, {"outside_ranks": 1}, {"quota-ranks": "for 2 ranks"}),
    (4.0, {"ranks": 2, "threads": 3}, {"quota": "6 threads will be throttled (lower --threads)"}),
    (4.0, {"outside_ranks": 1}, {"quota": "is 4: threads per rank limited to 2"}),
    (10.0, {"outside_ranks": 1}, {"quota": "is 10: threads per rank limited to 5"}),
    (4.0, {"outside_ranks": 1, "threads": 3}, {"quota": "6 threads will be throttled"}),
])  # fmt: skip
def test_warnings_name_the_quota(quota, options, expected):
    machine = make_machine(EIGHT, quota=quota)
    notes = make_plan(machine, Request(**options)).notes
    found = {note.code: note.text for note in notes if note.code.startswith("quota") and note.warning}
    assert found.keys() == expected.keys()
    assert all(text in found[code] for code, text in expected.items())
    if "quota-ranks" in expected:
        with pytest.raises(PlanError, match=r"quota of the cgroup is .+, which is too little for \d rank"):
            make_plan(machine, Request(strict=True, **options))
    else:
        assert make_plan(machine, Request(strict=True, **options))


@pytest.mark.parametrize(("smt", "quota", "options", "fewer", "used"), [
    (1, 4.5, {"ranks": 2}, "-c 2", ""), (1, 4.5, {"ranks": 2, "cores": 2}, "", "0-1,4-5"),
    (2, 4.5, {"outside_ranks": 1}, "--smt 1 -c 2", ""), (1, 0.5, {"strategy": "compact"}, "-c 1", ""),
    (1, 4.5, {"ranks": 2, "mask": parse_mask("0-3|4-7")}, "a smaller mask", ""),
    (1, 4.5, {"cores": 2, "mask": parse_mask("2-7")}, "", ""), (1, None, {"cores": 2}, "", ""),
    (1, 4.5, {"cores": 2, "sharing": Sharing.AVOID}, "", ""), (1, 4.5, {"reserve": 2}, "-c 4", ""),
    (1, 4.5, {"bind": Bind.THREAD}, "-c 4", "1-3"), (1, 1.5, {"bind": Bind.THREAD}, "-c 1", ""),
    (1, 4.5, {"bind": Bind.EXACT}, "-c 4", "0-3"), (1, 4.5, {"bind": Bind.NONE}, "-c 4", ""),
    (1, 4.5, {"cores": 2, "allowed": CpuSet.from_list("0-6")}, "", ""),
    (1, 4.5, {"threads": 2}, "-c 4", ""), (1, 8.0, {"threads": 2}, "", ""),
    (2, 4.5, {"ranks": 2, "service_cores": 1}, "--smt 1 -c 2", ""),
])  # fmt: skip
def test_pools_that_count_cpus_need_as_few_as_the_quota_has(smt, quota, options, fewer, used):
    machine = make_machine(EIGHT.replace(smt=smt), quota=quota, allowed=options.get("allowed"))
    plan = make_plan(machine, Request(**{name: options[name] for name in options if name != "allowed"}))
    texts = {note.code: note.text for note in plan.notes}
    _, _, remedy = texts.get("quota", "").partition("pools that count CPUs have more threads (")
    assert remedy.removesuffix(" gives fewer CPUs)") == fewer
    assert texts.get("quota-cpus", "").partition(";")[0] == (used and f"threads run on CPUs {used}")


@pytest.mark.parametrize(("options", "threads"), [
    ({"ranks": 2}, None), ({"ranks": 2, "threads": 6}, 12), ({"threads": 10}, None), ({"threads": 11}, 11),
    ({"outside_ranks": 3}, 32),
])  # fmt: skip
def test_a_warning_names_the_limit_that_leaves_too_few_tasks(options, threads):
    limit = TaskLimit(name="pids.max of /c", limit=20, used=9)
    plan = make_plan(make_machine(EIGHT, task_limit=limit), Request(**options))
    found = [note.text for note in plan.notes if note.code == "task-limit" and note.warning]
    assert len(found) == (threads is not None)
    assert not found or f"{threads} threads: pids.max of /c leaves 11 of 20 processes and threads" in found[0]


MACHINE = make_machine(Shape(packages=2, cores=4, smt=2))
PYTHON = Workload(program="/usr/bin/python3", python="/usr/bin/python3")


def counts(machine=MACHINE, **options):
    plan = make_plan(machine, Request(**{"ranks": 2, "workload": PYTHON, **options}))
    variables = make_thread_variables(plan, 0)
    return {name: variables[name] for name in THREAD_COUNTS}, plan


@pytest.mark.parametrize(("options", "by_mask"), [
    *((options, True) for options in (
        {}, {"bind": Bind.NONE}, {"workload": Workload(program="/usr/bin/uv", opaque=True)},
        {"machine": MACHINE.replace(quota=8.0)},
    )),
    *((options, False) for options in (
        {"workload": None}, {"workload": Workload(program="/bin/sh", opaque=True)}, {"threads": 4},
        {"service_cores": 1}, {"smt": "all"}, {"bind": Bind.THREAD}, {"machine": MACHINE.replace(quota=3.0)},
        {"machine": MACHINE.replace(bindable=False)}, {"compat": Compat(framework="vllm")},
    )),
])  # fmt: skip
def test_the_number_is_set_where_libraries_of_python_do_not_count_the_cpus_of_the_mask(options, by_mask):
    found, plan = counts(**options)
    text = " ".join(note.text for note in plan.notes)
    threads = str(plan.placements[0].threads)
    assert found == dict.fromkeys(THREAD_COUNTS, threads) | (dict.fromkeys(MASK_COUNTS) if by_mask else {})
    assert ("(-t sets the variables)" in text) == by_mask
    is_python = not {"workload", "compat"} & options.keys() and threads != "1"
    assert by_mask or ("(--processes-per-rank divides" in text) == is_python


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
