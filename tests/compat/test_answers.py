"""The CPUs of ranks with --compat, compared with those that vLLM and SGLang themselves select.

Their own functions were run for recorded machines, with the allowed CPUs of the recording (record_vllm.py).
"""

import json
from functools import cache
from pathlib import Path

import pytest

from ompbind.compat.frameworks import FrameworkInput
from ompbind.compat.reading import fill_request
from ompbind.cpuset import CpuSet, union
from ompbind.machine.model import Level
from ompbind.machine.read import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.recordings import NO_RECORDINGS, RECORDINGS

ANSWERS = Path(__file__).with_name("vllm-0.33.0.json")
"""vLLM's CPUs by machine: workers, VLLM_CPU_NUM_OF_RESERVED_CPU, KV connector, CPUs of each, reserved."""


def plan_for(framework, machine, ranks, reserved=None, command=(), **options):
    env = {} if reserved is None else {"VLLM_CPU_NUM_OF_RESERVED_CPU": str(reserved)}
    source = FrameworkInput(machine=machine, env=env, command=command, for_workers=True)
    return make_plan(machine, fill_request(Request(ranks=ranks, **options), framework, source, options))


@cache
def read_recording(name):
    path = RECORDINGS / f"dumps/{name}.tar.gz"
    if not path.exists():
        pytest.skip(NO_RECORDINGS)
    return read_machine(str(path))


def find_cores(machine, cpus):
    return machine.at(Level.CORE, cpus)


def leaves_cores_idle(machine, plan, theirs):
    ours = [rank.cpuset for rank in plan.placements]
    return all(
        given < rank and 2 * len(find_cores(machine, given)) <= len(find_cores(machine, rank)) + 1
        for given, rank in zip(theirs, ours, strict=True)
    )


BETTER = {
    # vLLM uses CPUs with number % 8 < 4: on cores with four hardware threads this is every second core
    "rec-power9-butte-gpunodes",
    "lscpu-ppc64-POWER7-64cpu",
}
"""The machines on which ompbind uses CPUs that vLLM leaves idle."""

SAME = """
vm-x86-2s4c2t-numa2 0,2,4,6 8,10,12,14
vm-x86-2s4c2t-numa2-interleaved 0-3 4-7
hwloc-20em64t-hybrid-1p6c2t+2ca4co1t 0,2,4,6,8,10,12-19
hwloc-48amd64-4pa2n6c-sparse 0-5 6-11 12-17 18-23 24-29 30-35 36-41 42-47
lscpu-x86_64-64cpu 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30 1,5,9,13,17,21,25,29 3,7,11,15,19,23,27,31
hwloc-16amd64-8n2c-cpusets 0-1 2-3 5 6 12-13 14-15
rec-ivybridge-12s 0-95
rec-power8-smt8 0,8,16,24,32,40,48,56,64,72 80,88,96,104,112,120,128,136,144,152
rec-thunderx2-2s-smt4 0-31 128-159
vm-arm64-2s2cl4c-numa2 0-7 8-15
hwloc-20s390-2g6s4c 0-19
mob-galaxy-s9-global 0-3 of 0-7
"""
"""The CPUs of each worker of SGLang 0.5.23, by recorded machine; "of": ranks get more than it uses."""


def read_answers():
    """The answers by machine: (workers, options, CPUs of each worker, reserved, whether ompbind differs)."""
    answers = {}
    for name, rows in json.loads(ANSWERS.read_text()).items():
        for workers, reserved, connector, cpus, others in rows:
            options = {"reserved": reserved, "command": ("--kv-transfer-config",) * connector}
            answers.setdefault(name, []).append((workers, options, cpus, others, name in BETTER))
    for name, rows in sorted(answers.items()):  # most machines prove nothing new
        mark = () if name in BETTER or name in SAME.split() else pytest.mark.long
        yield pytest.param(name, rows, id=name, marks=mark)


@pytest.mark.parametrize(("name", "answers"), [*read_answers()])
def test_ranks_get_the_cpus_that_vllm_selects(name, answers):
    machine = read_recording(name)
    for workers, options, cpus, others, differs in answers:
        plan = plan_for("vllm", machine, workers, **options)
        theirs, reserved = [CpuSet.from_list(each) for each in cpus], CpuSet.from_list(others)
        is_equal = [rank.compute for rank in plan.placements] == theirs
        is_equal &= union(rank.service_cpus for rank in plan.placements) == reserved
        assert is_equal is not differs, (workers, options, cpus, others)
        given = [cpus | reserved & rank.cpuset for cpus, rank in zip(theirs, plan.placements, strict=True)]
        assert is_equal or leaves_cores_idle(machine, plan, given)


@pytest.mark.parametrize("row", SAME.strip().splitlines())
def test_ranks_get_the_cpus_of_the_workers_of_sglang(row):
    theirs, _, ours = row.partition(" of ")
    name, *lists = theirs.split()
    plan = plan_for("sglang", read_recording(name), len(lists))
    assert [str(placement.compute) for placement in plan.placements] == (ours.split() or lists)
