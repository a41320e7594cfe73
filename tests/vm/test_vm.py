"""Virtual machines with their own kernel: what ompbind reads there, and where its ranks run.

`make test-all PARTS=vm` runs these tests; each machine of the table is booted once, in software emulation.
"""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from tests.live.conftest import required
from tests.vm.machines import MACHINES

pytestmark = pytest.mark.part("vm")

every_machine = pytest.mark.parametrize("name", MACHINES)


def each(field):
    """Parametrize over all machines, and for each machine over the rows of a field of its table."""
    rows = [
        pytest.param(name, *row, id=f"{name}: {row[0]}")
        for name, vm in MACHINES.items()
        for row in getattr(vm, field).items()
    ]
    return pytest.mark.parametrize(("name", "options", "expected"), rows)


def cpus_of(text):
    """The CPUs of a kernel list, parsed without ompbind; Linux writes an empty list as "(null)"."""
    ends = [part.split("-") for part in text.strip().removeprefix("(null)").split(",") if part]
    return frozenset(cpu for pair in ends for cpu in range(int(pair[0]), int(pair[-1]) + 1))


def cpus_of_mask(text):
    """The CPUs of a mask as hwloc writes it, the last 32 CPUs in the last word."""
    bits = int("".join(word.removeprefix("0x").zfill(8) for word in text.split(",")), 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def sets_of(text):
    return [cpus_of(part) for part in text.split("|")]


def grouped(pairs):
    """Group CPUs by key, from (key, CPU) pairs; CPUs without a key are left out."""
    sets = {}
    for key, cpu in pairs:
        if key not in (None, ""):
            sets.setdefault(key, set()).add(cpu)
    return {frozenset(cpus) for cpus in sets.values()}


def sets_of_ompbind(observed, level):
    return grouped((cpu[level], cpu["cpu"]) for cpu in json.loads(observed["topo"])["cpus"])


def sets_of_lscpu(observed, level):
    rows = [line.split(",") for line in observed["lscpu"].splitlines() if not line.startswith("#")]
    column = {"node": 1, "package": 2, "core": 3}[level]
    return grouped((row[column], int(row[0])) for row in rows)


def sets_of_hwloc(observed, level):
    """The sets of a level; in hwloc a node without CPUs has the CPUs near it, so it is left out."""
    kind = {"core": "Core", "package": "Package", "node": "NUMANode", "l2": "L2Cache", "l3": "L3Cache"}[level]
    without = {str(node) for node, cpus in sets_of_nodes(observed).items() if not cpus}
    return {
        cpus_of_mask(obj.get("cpuset"))
        for obj in ET.fromstring(observed["hwloc"]).iter("object")
        if obj.get("type") == kind and not (level == "node" and obj.get("os_index") in without)
    }


def sets_of_kernel(observed, level):
    files = observed["kernel"]
    if level in ("l2", "l3"):
        caches = [path for path, text in files.items() if path.endswith("/level") and text == f"{level[1]}\n"]
        return {cpus_of(files[path.replace("/level", "/shared_cpu_list")]) for path in caches}
    if level == "node":
        return {cpus for cpus in sets_of_nodes(observed).values() if cpus}
    return {cpus_of(text) for path, text in files.items() if path.endswith(f"/topology/{level}_cpus_list")}


def sets_of_nodes(observed):
    """Node → its online CPUs in the kernel's files."""
    found = {path: re.search(r"/node(\d+)/cpulist$", path) for path in observed["kernel"]}
    return {int(match[1]): cpus_of(observed["kernel"][path]) for path, match in found.items() if match}


@every_machine
def test_cpus_agree_with_the_kernel(name, observed):
    topo = json.loads(observed["topo"])
    kernel = {
        key: cpus_of(observed["kernel"][f"/sys/devices/system/cpu/{key}"])
        for key in ("online", "offline", "isolated", "nohz_full")
    }
    assert {key: cpus_of(topo[key]) for key in kernel} == kernel
    assert [row["cpu"] for row in topo["cpus"]] == sorted(kernel["online"])
    # an affinity mask keeps CPUs that went offline, and starts without isolated CPUs
    assert cpus_of(topo["allowed"]) == (cpus_of(observed["allowed"]) & kernel["online"]) | kernel["isolated"]
    assert {row["cpu"] for row in topo["cpus"] if row["allowed"]} == cpus_of(topo["allowed"])
    assert topo["quota_cpus"] == (4 if name == "cgroup" else None)
    assert topo["remarks"] == []


@every_machine
@pytest.mark.parametrize("level", ["core", "l2", "l3", "package", "node"])
def test_domains_agree_with_the_kernel(name, observed, level):
    assert sets_of_ompbind(observed, level) == sets_of_kernel(observed, level) != set()


@every_machine
def test_dies_agree_with_the_kernel(name, observed):
    """A kernel reports each package as a die on a machine without dies."""
    dies = sets_of_kernel(observed, "die")
    expected = set() if dies == sets_of_kernel(observed, "package") else dies
    assert sets_of_ompbind(observed, "die") == expected
    assert bool(expected) == (name == "dies")


@every_machine
@pytest.mark.parametrize("level", ["core", "package", "node"])
def test_domains_agree_with_lscpu(name, observed, level):
    assert sets_of_ompbind(observed, level) == sets_of_lscpu(observed, level) != set()


@every_machine
@pytest.mark.parametrize("level", ["core", "l2", "l3", "package", "node"])
def test_domains_agree_with_hwloc(name, observed, level):
    required("lstopo-no-graphics")
    assert sets_of_ompbind(observed, level) == sets_of_hwloc(observed, level) != set()


@every_machine
def test_nodes_agree_with_the_kernel(name, observed):
    files, sets = observed["kernel"], sets_of_nodes(observed)
    for node in json.loads(observed["topo"])["nodes"]:
        directory = f"/sys/devices/system/node/node{node['node']}"
        total = re.search(r"MemTotal:\s+(\d+) kB", files[f"{directory}/meminfo"])
        assert node["memory_bytes"] == int(total[1]) * 1024
        assert node["distances"] == [int(word) for word in files[f"{directory}/distance"].split()]
        assert cpus_of(node["cpus"]) == sets.pop(node["node"])
    assert not sets


@pytest.mark.parametrize(("name", "number"), [("memory", 2), ("hbm", 4)])
def test_hwloc_finds_memory_without_cpus_near_the_same_nodes(name, observed, number):
    required("lstopo-no-graphics")
    nodes = {node["node"]: node for node in json.loads(observed["topo"])["nodes"]}
    near = frozenset().union(*(cpus_of(nodes[other]["cpus"]) for other in nodes[number]["nearest"]))
    theirs = next(
        cpus_of_mask(obj.get("cpuset"))
        for obj in ET.fromstring(observed["hwloc"]).iter("object")
        if (obj.get("type"), obj.get("os_index")) == ("NUMANode", str(number))
    )
    assert nodes[number]["cpus"] == ""
    assert theirs == near < cpus_of(json.loads(observed["topo"])["online"])


@each("placed")
def test_ranks_run_on_the_expected_cpus(name, observed, options, expected):
    check_placement(observed["placed"][options], expected)


def check_placement(done, expected):
    """The plan has the CPU sets of the table, and the kernel has these affinity masks for the ranks."""
    assert done["plan"]["code"] == 0, done["plan"]["err"]
    plan = json.loads(done["plan"]["out"])
    assert [frozenset(rank["cpus"]) for rank in plan["ranks"]] == sets_of(expected)
    check_ranks(done["run"], sets_of(expected))
    for rank in plan["ranks"]:
        check_environment(done["run"]["ranks"][str(rank["rank"])]["env"], rank)


def check_ranks(run, sets):
    assert run["code"] == 0, run["err"]
    assert set(run["ranks"]) == {str(rank) for rank in range(len(sets))}
    assert [cpus_of(run["ranks"][str(rank)]["allowed"]) for rank in range(len(sets))] == sets


def check_environment(env, rank):
    """A rank has the variables of the plan with their values, and no variable that the plan clears."""
    assert {name: env.get(name) for name in rank["env"]} == rank["env"]
    assert "GOMP_CPU_AFFINITY" in rank["env"]
    assert [cpu for part in env["OMPBIND_CPUS"].split(",") for cpu in sorted(cpus_of(part))] == rank["cpus"]
    places = ",".join("{" + ",".join(map(str, sorted(cpus_of(place)))) + "}" for place in rank["places"])
    assert env.get("OMP_PLACES", "") == places


@pytest.mark.parametrize("name", ["cgroup"])
def test_thread_counts_follow_the_quota(name, observed):
    """With a quota of 4 CPUs, two ranks of four CPUs have two threads each, four ranks one each."""
    for options, threads in (("-n 4", "1"), ("-n 2 --smt all", "2")):
        ranks = observed["placed"][options]["run"]["ranks"]
        assert {rank["env"]["OMP_NUM_THREADS"] for rank in ranks.values()} == {threads}


@pytest.mark.parametrize("name", ["cgroup"])
def test_a_run_that_uses_up_its_quota_is_throttled(name, observed):
    done = observed["throttled"]
    assert "the CPU quota of 0.5 CPUs throttled this cgroup in" in " ".join(done["err"].split())
    throttling = json.loads(done["report"])["throttling"]
    assert 0 < throttling["throttled_periods"] <= throttling["periods"]
    assert throttling["throttled_s"] > 0


@each("memory_policies")
def test_memory_policies_of_ranks(name, observed, options, expected):
    done = observed["memory_policies"][options]
    assert done["code"] == 0, done["err"]
    policies = [
        re.match(r"(.*?) stack ", *done["ranks"][rank]["memory"])[1] for rank in sorted(done["ranks"])
    ]
    assert policies == expected.split("|")


@pytest.mark.parametrize("name", ["cgroup"])
def test_memory_that_is_not_allowed_is_reported(name, observed):
    bind, interleave = (" ".join(run["err"].split()) for run in observed["memory_policies"].values())
    why = "memory of NUMA node 1 is not allowed (cpuset.mems: 0)"
    assert f"{why}: CPUs 8,10 (rank 1) use memory of other nodes" in bind
    assert f"{why}: CPUs 8,10 (rank 0) use memory of other nodes" in interleave


@each("refused")
def test_impossible_options_are_refused(name, observed, options, expected):
    done = observed["refused"][options]
    assert (done["code"], done["ranks"]) == (125, {})
    assert re.search(expected, " ".join(done["err"].split()))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, id=f"{name}: {run.options}, {run.code}")
        for name, vm in MACHINES.items()
        for number, run in enumerate(vm.paused)
    ],
)
def test_a_machine_that_changes_before_ranks_are_bound(name, observed, number):
    expected, done = MACHINES[name].paused[number], observed["paused"][number]
    assert done["paused"], "the run did not wait when the machine changed"
    if expected.code == 0:
        check_ranks(done, sets_of(expected.expected))
    else:
        check_refused_to_bind(done, expected.expected)


def check_refused_to_bind(done, pattern):
    """The error names the first rank that cannot be bound, and no later rank has started."""
    err = " ".join(done["err"].split())
    assert done["code"] == 125, err
    assert re.search(pattern, err)
    refused = int(re.search(r"rank (\d+): ", err)[1])
    assert all(int(rank) < refused for rank in done["ranks"]), done
    assert "the allowed CPUs have changed" in err
    assert "Traceback" not in err


CORES = "0-1|2-3|4-5|{}|8-9|10-11|12-13|14-15"


@pytest.mark.parametrize("name", ["unplugged"])
def test_a_cpu_that_goes_offline_and_online(name, observed):
    """Every run has all CPUs of its plan, made with or without CPU 7, or it fails with an error."""
    assert len(observed["toggled"]) == MACHINES[name].toggled.runs
    for done in observed["toggled"]:
        if done["code"]:
            check_refused_to_bind(done, "CPUs? [67]")
        else:
            planned = {cpus_of(rank["env"]["OMPBIND_CPUS"]) for rank in done["ranks"].values()}
            assert planned in [set(sets_of(CORES.format(core))) for core in ("6", "6-7")]
            check_ranks(done, sets_of(CORES.format("6-7" if frozenset({6, 7}) in planned else "6")))


@pytest.mark.parametrize("name", ["cgroup"])
def test_a_cpuset_that_shrinks_and_grows(name, observed):
    """Every rank runs on CPUs of its plan, or no rank has started.

    Tasks lose the CPUs that their cpuset loses. Before Linux 6.2 they get all its CPUs when it changes.
    """
    toggled = MACHINES[name].toggled
    smaller, whole = map(cpus_of, toggled.texts)
    assert len(observed["toggled"]) == toggled.runs
    for done in observed["toggled"]:
        if done["code"]:
            check_refused_to_bind(done, "rank [0-3]: .* CPUs?")
            continue
        planned = {rank: cpus_of(written["env"]["OMPBIND_CPUS"]) for rank, written in done["ranks"].items()}
        allowed = {rank: cpus_of(written["allowed"]) for rank, written in done["ranks"].items()}
        assert set(planned) == {"0", "1", "2", "3"}
        assert all(
            allowed[rank] in (planned[rank], planned[rank] & smaller, smaller, whole) for rank in planned
        ), done
    assert any(not done["code"] for done in observed["toggled"])
