"""The CPUs of ranks with --compat sglang, compared with those that SGLang itself gives to its workers."""

import pytest

from ompbind.compat.frameworks import FrameworkInput
from ompbind.compat.reading import fill_request
from ompbind.cpuset import CpuSet
from ompbind.machine.sources.reading import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine
from tests.recordings import RECORDINGS

SAME = {
    "vm-x86-2s4c2t-numa2": ["0,2,4,6", "8,10,12,14"],
    "vm-x86-2s4c2t-numa2-interleaved": ["0-3", "4-7"],
    "hwloc-20em64t-hybrid-1p6c2t+2ca4co1t": ["0,2,4,6,8,10,12-19"],
    "hwloc-48amd64-4pa2n6c-sparse": ["0-5", "6-11", "12-17", "18-23", "24-29", "30-35", "36-41", "42-47"],
    "lscpu-x86_64-64cpu": [
        "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30", "1,5,9,13,17,21,25,29", "3,7,11,15,19,23,27,31",
    ],
    "hwloc-16amd64-8n2c-cpusets": ["0-1", "2-3", "5", "6", "12-13", "14-15"],
    "rec-ivybridge-12s": ["0-95"],
    "rec-power8-smt8": ["0,8,16,24,32,40,48,56,64,72", "80,88,96,104,112,120,128,136,144,152"],
    "rec-thunderx2-2s-smt4": ["0-31", "128-159"],
    "vm-arm64-2s2cl4c-numa2": ["0-7", "8-15"],
    "hwloc-20s390-2g6s4c": ["0-19"],
}  # fmt: skip
"""The CPUs of each worker of SGLang 0.5.23, by recorded machine.

SGLang's own functions were run on what lscpu prints for the machine, with the allowed CPUs of the recording.
"""

MODULES = "an AMD module has two cores, and SGLang takes it for one core"
CLUSTERS = "clusters repeat core numbers, and SGLang takes cores with equal numbers for one core"
MORE = {
    "hwloc-64amd64-4p2n4ca2co": (MODULES, [
        "0,2,4,6", "8,10,12,14", "32,34,36,38", "40,42,44,46", "48,50,52,54", "56,58,60,62", "16,18,20,22",
        "24,26,28,30",
    ]),
    "lscpu-vmware_fpe": (MODULES, ["0,2", "4,6", "8,10", "12,14"]),
    "lscpu-arm-A510-A710-A715-X3": (CLUSTERS, ["0-2"]),
    "mob-galaxy-s9-global": (CLUSTERS, ["0-3"]),
    "hwloc-2s390-2c": ("no cores are known, and SGLang takes all CPUs for one core", ["0"]),
}  # fmt: skip
"""The same for machines on which ompbind uses more CPUs, with the reason."""


def read_recording(name):
    path = RECORDINGS / f"dumps/{name}.tar.gz"
    if not path.exists():
        pytest.skip("no recordings")
    return read_machine(str(path))


def plan_for(machine, ranks, given=(), **options):
    request = Request(ranks=ranks, **options)
    return make_plan(machine, fill_request(request, "sglang", FrameworkInput(machine=machine, env={}), given))


def lists(plan):
    return [str(placement.compute) for placement in plan.placements]


@pytest.mark.parametrize("name", SAME)
def test_ranks_get_the_cpus_of_the_workers_of_sglang(name):
    machine = read_recording(name)
    assert lists(plan_for(machine, len(SAME[name]))) == SAME[name]
    assert lists(plan_for(machine, 1)) == SAME[name][:1]


@pytest.mark.parametrize("name", MORE)
def test_ranks_get_more_cpus_where_sglang_does_not_know_the_cores(name):
    _, expected = MORE[name]
    plan = plan_for(read_recording(name), len(expected))
    for text, placement in zip(expected, plan.placements, strict=True):
        assert set(CpuSet.from_list(text)) < set(placement.compute)


SMT8 = make_machine(Shape(packages=2, cores=2, smt=8))


@pytest.mark.parametrize(
    ("ranks", "given", "options", "expected"),
    [
        (2, (), {}, ["0-1", "2-3"]),
        (2, ("smt",), {"smt": 2}, ["0-1,4-5", "2-3,6-7"]),
        (2, ("strategy",), {"strategy": "cores"}, ["0", "1"]),
        (1, ("strategy",), {"strategy": "balanced"}, ["0-3"]),
        (4, (), {}, ["0", "1", "2", "3"]),
    ],
)
def test_options_override_the_selection_of_sglang(ranks, given, options, expected):
    assert lists(plan_for(SMT8, ranks, given, **options)) == expected


def test_a_note_says_what_sglang_does_with_more_ranks_than_nodes():
    text = "SGLang stops if there are more ranks than NUMA nodes; ranks divide these evenly"
    for ranks in (1, 2, 3, 4):
        notes = [note.text for note in plan_for(SMT8, ranks).notes]
        assert (text in notes) == (ranks > 2)
