"""The plans of --compat vllm on recorded machines, compared with the answers of vLLM itself."""

import json
import shlex

import pytest

from ompbind.compat.frameworks import FrameworkInput
from ompbind.compat.reading import fill_request
from ompbind.cpuset import CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.model import Level, find_overlapping
from ompbind.machine.sources.reading import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.export.server_settings import render_vllm
from tests.recordings import RECORDINGS, name_of, recorded, sampled

ANSWERS = RECORDINGS / "../vllm/auto.json"
"""vLLM's CPUs: machine, ranks, VLLM_CPU_NUM_OF_RESERVED_CPU or None, `cpus` of each rank, `reserved`."""


def read_answers():
    """The recorded answers by the name of the machine; none if the file does not exist."""
    answers = {}
    for answer in json.loads(ANSWERS.read_text()) if ANSWERS.exists() else ():
        answers.setdefault(answer["machine"], []).append(answer)
    return answers


def plan_as_vllm(machine, ranks, reserved=None):
    env = {} if reserved is None else {"VLLM_CPU_NUM_OF_RESERVED_CPU": str(reserved)}
    return make_plan(
        machine, fill_request(Request(ranks=ranks), "vllm", FrameworkInput(machine=machine, env=env))
    )


def find_cores(machine, cpus):
    return find_overlapping(machine.at(Level.CORE), cpus)


def leaves_cores_idle(machine, plan, theirs):
    """Whether vLLM uses only some of the CPUs of each rank, and half of its cores."""
    ours = [rank.cpuset for rank in plan.placements]
    return all(
        given < rank and 2 * len(find_cores(machine, given)) <= len(find_cores(machine, rank)) + 1
        for given, rank in zip(theirs, ours, strict=True)
    )


BETTER = {
    # lscpu shows the two cores of an AMD module as one core, because their sibling masks are equal (their
    # core_ids and L1 data caches are not); vLLM leaves one of the two idle
    "hwloc-64amd64-4p2n4ca2co": (leaves_cores_idle, {1, 2, 8}),
    "lscpu-vmware_fpe": (leaves_cores_idle, {1, 2, 4}),
    # vLLM uses CPUs with number % 8 < 4: on cores with four hardware threads this is every second core
    "rec-power9-butte-gpunodes": (leaves_cores_idle, {1, 2}),
    # packages are the clusters of a big.LITTLE chip; vLLM's rank gets the four slow cores alone
    "mob-huawei-honor-6": (leaves_cores_idle, {1}),
}
"""Machine → why other CPUs are better, and the numbers of ranks for which the CPUs differ."""


@pytest.mark.parametrize(
    ("name", "answers"),
    [pytest.param(*pair, id=pair[0]) for pair in read_answers().items()]
    or [pytest.param("", [], marks=pytest.mark.skip(f"no answers in {ANSWERS}"))],
)
def test_ranks_get_the_cpus_that_vllm_selects(name, answers):
    machine = read_machine(str(RECORDINGS / f"dumps/{name}.tar.gz"))
    for answer in answers:
        plan = plan_as_vllm(machine, answer["ranks"], answer["reserved_cpus"])
        theirs, reserved = (
            [CpuSet.from_list(cpus) for cpus in answer["cpus"]],
            CpuSet.from_list(answer["reserved"]),
        )
        is_equal = [rank.compute for rank in plan.placements] == theirs
        is_equal &= union(rank.service_cpus for rank in plan.placements) == reserved
        is_better, ranks = BETTER.get(name, (None, ()))
        assert is_equal is (answer["ranks"] not in ranks), answer
        if not is_equal:
            assert is_better(
                machine,
                plan,
                [given | reserved & rank.cpuset for given, rank in zip(theirs, plan.placements, strict=True)],
            )


def parse_id_list(text):
    """Read numbers and ranges, as vLLM reads the list of a rank."""
    ranges = [part.split("-") for part in text.split(",")]
    return {cpu for bounds in ranges for cpu in range(int(bounds[0]), int(bounds[-1]) + 1)}


@pytest.mark.parametrize(
    "path",
    sampled([*recorded("dumps/*.tar.gz"), *recorded("xml/*.xml")])
    or [pytest.param(None, marks=pytest.mark.skip(f"no recordings in {RECORDINGS}"))],
)
def test_vllm_reads_the_same_cpus_from_the_exported_lists(path):
    try:
        machine = read_machine(str(path))
    except MachineError:
        return
    for ranks in (1, None, 3):
        if ranks and ranks > len(find_cores(machine, machine.default_cpus)):
            continue
        plan = plan_as_vllm(machine, ranks)
        command, assignment = shlex.split(render_vllm(plan))
        lists = assignment.removeprefix("VLLM_CPU_OMP_THREADS_BIND=").split("|")
        assert command == "export"
        assert list(map(parse_id_list, lists)) == [set(rank.compute) for rank in plan.placements], name_of(
            path
        )
        assert not any(rank.service_cpus & plan.compute for rank in plan.placements)
