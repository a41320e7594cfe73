"""Other machines, with a kernel of their own: what ompbind reads there, and where its ranks are then.

`make test-vm` runs these tests; each machine of the table is booted once, in software emulation.
"""

import json
import os
import re
import xml.etree.ElementTree as ET

import pytest

from tests.live.conftest import required
from tests.vm.machines import MACHINES

if not os.environ.get("OMPBIND_VM_TESTS"):
    pytest.skip("boots virtual machines, which takes minutes: make test-vm does", allow_module_level=True)

every_machine = pytest.mark.parametrize("name", MACHINES)


def each(field):
    """Parametrise over every machine, and for each over what the table has in a field."""
    rows = [
        pytest.param(name, *row, id=f"{name}: {row[0]}")
        for name, vm in MACHINES.items()
        for row in getattr(vm, field).items()
    ]
    return pytest.mark.parametrize(("name", "options", "expected"), rows)


def cpus_of(text):
    """The CPUs of a kernel list, read without the code that is tested; "(null)" is Linux for none."""
    ends = [part.split("-") for part in text.strip().removeprefix("(null)").split(",") if part]
    return frozenset(cpu for pair in ends for cpu in range(int(pair[0]), int(pair[-1]) + 1))


def cpus_of_mask(text):
    """The CPUs of a mask as hwloc writes it, the last 32 CPUs in the last word."""
    bits = int("".join(word.removeprefix("0x").zfill(8) for word in text.split(",")), 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def sets_of(text):
    return [cpus_of(part) for part in text.split("|")]


def grouped(pairs):
    """The sets of CPUs that have the same key, from (key, CPU) pairs; no key is no set."""
    sets = {}
    for key, cpu in pairs:
        if key not in (None, ""):
            sets.setdefault(key, set()).add(cpu)
    return {frozenset(cpus) for cpus in sets.values()}


def told_by_ompbind(seen, level):
    return grouped((cpu[level], cpu["cpu"]) for cpu in json.loads(seen["topo"])["cpus"])


def told_by_lscpu(seen, level):
    rows = [line.split(",") for line in seen["lscpu"].splitlines() if not line.startswith("#")]
    column = {"node": 1, "package": 2, "core": 3}[level]
    return grouped((row[column], int(row[0])) for row in rows)


def told_by_hwloc(seen, level):
    """A node without CPUs has the CPUs near it in hwloc: another question, asked below."""
    kind = {"core": "Core", "package": "Package", "node": "NUMANode", "l2": "L2Cache", "l3": "L3Cache"}[level]
    without = {str(node) for node, cpus in sets_of_nodes(seen).items() if not cpus}
    return {
        cpus_of_mask(one.get("cpuset"))
        for one in ET.fromstring(seen["hwloc"]).iter("object")
        if one.get("type") == kind and not (level == "node" and one.get("os_index") in without)
    }


def told_by_kernel(seen, level):
    files = seen["kernel"]
    if level in ("l2", "l3"):
        caches = [path for path, text in files.items() if path.endswith("/level") and text == f"{level[1]}\n"]
        return {cpus_of(files[path.replace("/level", "/shared_cpu_list")]) for path in caches}
    if level == "node":
        return {cpus for cpus in sets_of_nodes(seen).values() if cpus}
    return {cpus_of(text) for path, text in files.items() if path.endswith(f"/topology/{level}_cpus_list")}


def sets_of_nodes(seen):
    """Node → its CPUs that are online, as the kernel says."""
    found = {path: re.search(r"/node(\d+)/cpulist$", path) for path in seen["kernel"]}
    return {int(match[1]): cpus_of(seen["kernel"][path]) for path, match in found.items() if match}


@every_machine
def test_cpus_are_those_of_the_kernel(name, seen):
    topo = json.loads(seen["topo"])
    told = {
        key: cpus_of(seen["kernel"][f"/sys/devices/system/cpu/{key}"])
        for key in ("online", "offline", "isolated", "nohz_full")
    }
    assert {key: cpus_of(topo[key]) for key in told} == told
    assert [one["cpu"] for one in topo["cpus"]] == sorted(told["online"])
    # an affinity mask keeps what went offline, and begins without what is isolated
    assert cpus_of(topo["allowed"]) == (cpus_of(seen["allowed"]) & told["online"]) | told["isolated"]
    assert {one["cpu"] for one in topo["cpus"] if one["allowed"]} == cpus_of(topo["allowed"])
    assert topo["quota_cpus"] == (4 if name == "cgroup" else None)
    assert topo["remarks"] == []


@every_machine
@pytest.mark.parametrize("level", ["core", "l2", "l3", "package", "node"])
def test_domains_are_those_of_the_kernel(name, seen, level):
    assert told_by_ompbind(seen, level) == told_by_kernel(seen, level) != set()


@every_machine
def test_dies_are_those_of_the_kernel(name, seen):
    """A kernel that knows of no dies calls each package one, which tells nothing."""
    dies = told_by_kernel(seen, "die")
    expected = set() if dies == told_by_kernel(seen, "package") else dies
    assert told_by_ompbind(seen, "die") == expected
    assert bool(expected) == (name == "dies")


@every_machine
@pytest.mark.parametrize("level", ["core", "package", "node"])
def test_domains_are_those_of_lscpu(name, seen, level):
    assert told_by_ompbind(seen, level) == told_by_lscpu(seen, level) != set()


@every_machine
@pytest.mark.parametrize("level", ["core", "l2", "l3", "package", "node"])
def test_domains_are_those_of_hwloc(name, seen, level):
    required("lstopo-no-graphics")
    assert told_by_ompbind(seen, level) == told_by_hwloc(seen, level) != set()


@every_machine
def test_nodes_are_those_of_the_kernel(name, seen):
    files, sets = seen["kernel"], sets_of_nodes(seen)
    for node in json.loads(seen["topo"])["nodes"]:
        folder = f"/sys/devices/system/node/node{node['node']}"
        total = re.search(r"MemTotal:\s+(\d+) kB", files[f"{folder}/meminfo"])
        assert node["memory_bytes"] == int(total[1]) * 1024
        assert node["distances"] == [int(word) for word in files[f"{folder}/distance"].split()]
        assert cpus_of(node["cpus"]) == sets.pop(node["node"])
    assert not sets


@pytest.mark.parametrize(("name", "number"), [("memory", 2), ("hbm", 4)])
def test_hwloc_finds_memory_without_cpus_near_the_same_nodes(name, seen, number):
    required("lstopo-no-graphics")
    nodes = {node["node"]: node for node in json.loads(seen["topo"])["nodes"]}
    near = frozenset().union(*(cpus_of(nodes[other]["cpus"]) for other in nodes[number]["nearest"]))
    theirs = next(
        cpus_of_mask(one.get("cpuset"))
        for one in ET.fromstring(seen["hwloc"]).iter("object")
        if (one.get("type"), one.get("os_index")) == ("NUMANode", str(number))
    )
    assert nodes[number]["cpus"] == ""
    assert theirs == near < cpus_of(json.loads(seen["topo"])["online"])


@each("placed")
def test_ranks_are_where_they_belong(name, seen, options, expected):
    check_placement(seen["placed"][options], expected)


def check_placement(done, expected):
    """The plan is the one of the table, and the kernel has every rank where the plan says."""
    assert done["plan"]["code"] == 0, done["plan"]["said"]
    plan = json.loads(done["plan"]["out"])
    assert [frozenset(rank["cpus"]) for rank in plan["ranks"]] == sets_of(expected)
    check_ranks(done["run"], sets_of(expected))
    for rank in plan["ranks"]:
        check_environment(done["run"]["ranks"][str(rank["rank"])]["env"], rank)


def check_ranks(run, sets):
    assert run["code"] == 0, run["said"]
    assert set(run["ranks"]) == {str(rank) for rank in range(len(sets))}
    assert [cpus_of(run["ranks"][str(rank)]["allowed"]) for rank in range(len(sets))] == sets


def check_environment(env, rank):
    """What the plan sets is there with this value, and what it clears is not."""
    assert {name: env.get(name) for name in rank["env"]} == rank["env"]
    assert "GOMP_CPU_AFFINITY" in rank["env"]
    assert [cpu for part in env["OMPBIND_CPUS"].split(",") for cpu in sorted(cpus_of(part))] == rank["cpus"]
    places = ",".join("{" + ",".join(map(str, sorted(cpus_of(place)))) + "}" for place in rank["places"])
    assert env.get("OMP_PLACES", "") == places


@pytest.mark.parametrize("name", ["cgroup"])
def test_threads_are_those_of_the_quota(name, seen):
    """CPU time of four: two ranks with four CPUs each have two threads each, four with one CPU one each."""
    for options, threads in (("-n 4", "1"), ("-n 2 --smt all", "2")):
        ranks = seen["placed"][options]["run"]["ranks"]
        assert {rank["env"]["OMP_NUM_THREADS"] for rank in ranks.values()} == {threads}


@each("remembered")
def test_memory_comes_from_where_it_should(name, seen, options, expected):
    done = seen["remembered"][options]
    assert done["code"] == 0, done["said"]
    policies = [
        re.match(r"(.*?) stack ", *done["ranks"][rank]["memory"])[1] for rank in sorted(done["ranks"])
    ]
    assert policies == expected.split("|")


@pytest.mark.parametrize("name", ["cgroup"])
def test_memory_that_is_not_allowed_is_told(name, seen):
    bind, interleave = (" ".join(one["said"].split()) for one in seen["remembered"].values())
    refusal = "memory of NUMA node 1 is not allowed (cpuset.mems: 0)"
    assert f"--memory bind will not be set for rank 1: {refusal}" in bind
    assert "not allowed (cpuset.mems: 0): it is not used for rank 0" in interleave


@each("refused")
def test_what_cannot_be_is_refused(name, seen, options, expected):
    done = seen["refused"][options]
    assert (done["code"], done["ranks"]) == (125, {})
    assert re.search(expected, " ".join(done["said"].split()))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, id=f"{name}: {one.options}, {one.code}")
        for name, vm in MACHINES.items()
        for number, one in enumerate(vm.held)
    ],
)
def test_a_machine_that_changes_before_ranks_are_bound(name, seen, number):
    expected, done = MACHINES[name].held[number], seen["held"][number]
    assert done["held"], "the run was not there when the machine changed"
    if expected.code == 0:
        check_ranks(done, sets_of(expected.told))
    else:
        check_refused_to_bind(done, expected.told)


def check_refused_to_bind(done, told):
    """The first rank that cannot be bound is told, and no later one has started."""
    said = " ".join(done["said"].split())
    assert done["code"] == 125, said
    assert re.search(told, said)
    refused = int(re.search(r"rank (\d+): ", said)[1])
    assert all(int(rank) < refused for rank in done["ranks"]), done
    assert "the allowed CPUs have changed" in said
    assert "Traceback" not in said


CORES = "0-1|2-3|4-5|{}|8-9|10-11|12-13|14-15"


@pytest.mark.parametrize("name", ["unplugged"])
def test_a_cpu_that_goes_and_comes(name, seen):
    """Every run has all CPUs that it planned with, one less or not, or says that it has not."""
    assert len(seen["toggled"]) == MACHINES[name].toggled.runs
    for done in seen["toggled"]:
        if done["code"]:
            check_refused_to_bind(done, "CPUs? [67]")
        else:
            planned = {cpus_of(rank["env"]["OMPBIND_CPUS"]) for rank in done["ranks"].values()}
            assert planned in [set(sets_of(CORES.format(core))) for core in ("6", "6-7")]
            check_ranks(done, sets_of(CORES.format("6-7" if frozenset({6, 7}) in planned else "6")))


@pytest.mark.parametrize("name", ["cgroup"])
def test_a_cpuset_that_shrinks_and_grows(name, seen):
    """Every rank is on CPUs of its plan, or none has started.

    What a cpuset loses its tasks lose; kernels before 6.2 let them run on all of it whenever it changes.
    """
    toggled = MACHINES[name].toggled
    smaller, whole = map(cpus_of, toggled.texts)
    assert len(seen["toggled"]) == toggled.runs
    for done in seen["toggled"]:
        if done["code"]:
            check_refused_to_bind(done, "rank [0-3]: .* CPUs?")
            continue
        planned = {rank: cpus_of(one["env"]["OMPBIND_CPUS"]) for rank, one in done["ranks"].items()}
        allowed = {rank: cpus_of(one["allowed"]) for rank, one in done["ranks"].items()}
        assert set(planned) == {"0", "1", "2", "3"}
        assert all(
            allowed[rank] in (planned[rank], planned[rank] & smaller, smaller, whole) for rank in planned
        ), done
    assert any(not done["code"] for done in seen["toggled"])
