"""The sample machines: what each has, that JSON keeps it, and plans for it."""

import pytest

from ompbind.cpuset import CpuSet, union
from ompbind.errors import MachineError
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level, cpus_of_cores, find_overlapping
from ompbind.machine.sources.linux.reader import read_recorded
from ompbind.machine.sources.reading import read_machine
from ompbind.machine.sources.samples import SAMPLES
from ompbind.machine.sources.sources import SAMPLE, complete_source
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.planning.strategies.strategies import STRATEGIES
from ompbind.report.topology import render_json
from tests.machines import DictRoot, Shape, make_machine, shape_files

NAMES = [sample.name for sample in SAMPLES]


def read(name):
    return read_machine(f"{SAMPLE}{name}", devices=True)


COUNTS = (
    # name, architecture, CPUs, and the number of domains of levels
    ("two-sockets", "x86_64", 16, {"package": 2, "node": 2, "l3": 2, "l2": 8, "core": 8}),
    ("four-gpus", "x86_64", 32, {"package": 2, "node": 2, "l3": 2, "core": 16}),
    ("eight-nodes", "x86_64", 32, {"package": 2, "node": 8, "l3": 8, "core": 32}),
    ("epyc-2p", "x86_64", 384, {"package": 2, "node": 8, "l3": 24, "l2": 192, "core": 192}),
    ("xeon-max-2p", "x86_64", 224, {"package": 2, "l3": 2, "node": 8, "l2": 112, "core": 112}),
    ("dgx-a100", "x86_64", 256, {"package": 2, "node": 8, "l3": 32, "l2": 128, "core": 128}),
    ("core-i9", "x86_64", 32, {"package": 1, "node": 1, "l3": 1, "l2": 12, "core": 24}),
    ("grace-2p", "aarch64", 144, {"package": 2, "node": 2, "l3": 2, "l2": 144, "core": 144}),
    ("power9-2p", "ppc64le", 160, {"package": 2, "node": 2, "l3": 20, "l2": 20, "core": 40}),
    ("z15-partition", "s390x", 96,
     {"node": 1, "drawer": 2, "book": 4, "package": 8, "l3": 8, "l2": 48, "core": 48}),
)  # fmt: skip


@pytest.mark.parametrize(("name", "arch", "cpus", "domains"), COUNTS, ids=[row[0] for row in COUNTS])
def test_samples_have_what_they_model(name, arch, cpus, domains):
    machine = read(name)
    assert (machine.source, machine.arch) == (f"sample:{name}", arch)
    assert machine.online == machine.allowed == CpuSet(range(cpus))
    assert {str(level): len(machine.at(level)) for level in machine.levels} == domains
    assert machine.remarks == ()
    for level in machine.levels:
        assert union(domain.cpus for domain in machine.at(level)) == machine.online


def test_the_table_of_counts_has_all_samples():
    assert [row[0] for row in COUNTS] == NAMES


SIBLINGS = (
    ("epyc-2p", 0, "0,192"),
    ("epyc-2p", 191, "191,383"),
    ("dgx-a100", 48, "48,176"),
    ("xeon-max-2p", 111, "111,223"),
    ("core-i9", 15, "14-15"),
    ("core-i9", 16, "16"),
    ("grace-2p", 143, "143"),
    ("power9-2p", 5, "4-7"),
    ("z15-partition", 95, "94-95"),
)


@pytest.mark.parametrize(("name", "cpu", "expected"), SIBLINGS)
def test_cpus_have_the_numbers_of_linux(name, cpu, expected):
    cores = read(name).at(Level.CORE)
    assert [str(core.cpus) for core in cores if cpu in core.cpus] == [expected]


def test_the_small_machine_is_read_from_sysfs_alike():
    root = DictRoot(shape_files(Shape(packages=2, cores=4, smt=2)))
    assert read("two-sockets") == read_recorded(root).replace(source="sample:two-sockets", arch="x86_64")


@pytest.mark.parametrize(
    ("name", "shape"),
    [("four-gpus", Shape(packages=2, cores=8, smt=2)), ("eight-nodes", Shape(packages=2, nodes=4, cores=4))],
)
def test_machines_with_gpus_are_regular(name, shape):
    machine = read(name)
    expected = make_machine(shape, source=machine.source, arch="x86_64", devices=machine.devices)
    assert machine == expected


def test_memory_without_cpus_is_near_the_node_that_it_belongs_to():
    machine = read("xeon-max-2p")
    far = [node for node in machine.nodes if not node.cpus]
    assert [(node.number, node.nearest) for node in far] == [(8 + number, (number,)) for number in range(8)]
    assert machine.nodes[1].distances == (12, 10, 12, 12, 21, 21, 21, 21, 14, 13, 14, 14, 23, 23, 23, 23)
    assert machine.nodes[9].distances == (14, 13, 14, 14, 23, 23, 23, 23, 14, 10, 14, 14, 23, 23, 23, 23)


def test_nodes_have_the_numbers_of_the_firmware():
    assert [node.number for node in read("power9-2p").nodes] == [0, 8]


def test_the_hybrid_processor_has_two_kinds_of_cores():
    kinds = read("core-i9").kinds
    assert [(kind.name, str(kind.cpus)) for kind in kinds] == [
        ("performance", "0-15"),
        ("efficiency", "16-31"),
    ]


def test_devices_are_read_only_if_asked_for():
    assert read_machine("sample:four-gpus").devices == ()
    devices = read("dgx-a100").devices
    assert [device.node for device in devices] == [3, 3, 1, 1, 7, 7, 5, 5] * 2
    assert {device.kind for device in devices} == {DeviceKind.GPU, DeviceKind.NIC}
    assert str(devices[0].cpus) == "48-63,176-191"


@pytest.mark.parametrize("name", NAMES)
def test_json_makes_the_same_machine(name, tmp_path):
    path = tmp_path / "machine.json"
    path.write_text(render_json(read(name)))
    assert read_machine(str(path), devices=True).replace(source=f"sample:{name}") == read(name)


PLANS = [
    (name, strategy)
    for name, _, _, domains in COUNTS
    for strategy, row in STRATEGIES.items()
    if not row.overlapping and (row.level is None or domains.get(row.level, 1) > 1)
]


@pytest.mark.parametrize(("name", "strategy"), PLANS)
def test_two_ranks_get_equal_shares_of_whole_cores(name, strategy):
    machine = read_machine(f"sample:{name}")
    plan = make_plan(machine, Request(ranks=2, strategy=strategy, smt="all"))
    first, second = (CpuSet(placement.cpus) for placement in plan.placements)
    assert first.isdisjoint(second)
    numbers = [len(find_overlapping(machine.at(Level.CORE), cpus)) for cpus in (first, second)]
    assert numbers[0] == numbers[1] > 0
    for cpus in (first, second):
        assert cpus_of_cores(machine, cpus) == cpus


EXPECTED = (
    # name, request, ranks, CPUs of the first rank and of the last
    ("epyc-2p", {"ranks": 8}, 8, "0-23", "168-191"),
    ("epyc-2p", {"ranks": None, "strategy": "l3", "smt": "all"}, 24, "0-7,192-199", "184-191,376-383"),
    ("xeon-max-2p", {"ranks": None, "strategy": "nodes"}, 8, "0-13", "98-111"),
    ("dgx-a100", {"ranks": 8, "devices": (DeviceKind.GPU,)}, 8, "48-55", "88-95"),
    ("core-i9", {"ranks": 4, "core_kind": "efficiency"}, 4, "16-19", "28-31"),
    ("core-i9", {"ranks": 2, "core_kind": "performance", "smt": "all"}, 2, "0-7", "8-15"),
    ("grace-2p", {"ranks": 4}, 4, "0-35", "108-143"),
    ("power9-2p", {"ranks": None, "strategy": "nodes", "smt": "all"}, 2, "0-79", "80-159"),
    ("z15-partition", {"ranks": None, "strategy": "books", "smt": "all"}, 4, "0-23", "72-95"),
)


@pytest.mark.parametrize(("name", "request_", "ranks", "first", "last"), EXPECTED)
def test_plans_follow_the_domains_of_the_machine(name, request_, ranks, first, last):
    placements = make_plan(read(name), Request(**request_)).placements
    cpus = [str(CpuSet(placement.cpus)) for placement in placements]
    assert (len(cpus), cpus[0], cpus[-1]) == (ranks, first, last)


@pytest.mark.parametrize(("source", "message", "hint"), [
    ("sample:epyc", "there is no sample machine 'epyc'",
     "did you mean sample:epyc-2p? Otherwise use one of: "),
    ("sample:dgx-a10", "there is no sample machine 'dgx-a10'",
     "did you mean sample:dgx-a100? Otherwise use one of: "),
    ("sample:unheard-of", "there is no sample machine 'unheard-of'", "use one of: "),
    ("sample:", "'sample:' lacks a name", "use one of: "),
])  # fmt: skip
def test_a_wrong_name_is_an_error_with_a_similar_name_first_and_all_names(source, message, hint):
    with pytest.raises(MachineError) as found:
        read_machine(source)
    assert found.value.message == message
    assert found.value.hint.startswith(f"{hint}sample:two-sockets (")
    for sample in SAMPLES:
        assert f"sample:{sample.name} ({sample.summary})" in found.value.hint


def test_a_name_without_the_prefix_is_suggested():
    with pytest.raises(MachineError, match="does not exist") as found:
        read_machine("epyc-2p")
    assert found.value.hint == "write sample:epyc-2p"


def test_names_are_completed():
    assert complete_source("s") == ["live", "synthetic:", *(f"sample:{name}" for name in NAMES)]
    assert complete_source("") == []  # files are completed then
