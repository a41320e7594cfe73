"""Virtual machines with their own kernel: what ompbind reads there, and where its ranks run.

`make test-all PARTS=vm` runs these tests; each machine of the table is booted once, in software emulation.
"""

import json
import re
import shlex
import sys

import pytest

from tests.vm.conftest import run_in_machine
from tests.vm.machines import MACHINES

pytestmark = pytest.mark.part("vm")


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


def sets_of(text):
    return [cpus_of(part) for part in text.split("|")]


@pytest.mark.parametrize("name", MACHINES)
def test_cpus_agree_with_the_kernel(name, observed):
    """Recordings are compared with other readers; here, the ranks below show which domains were read."""
    topo = json.loads(observed["topo"])
    kernel = {key: cpus_of(text) for key, text in observed["kernel"].items()}
    assert {key: cpus_of(topo[key]) for key in kernel} == kernel
    assert [row["cpu"] for row in topo["cpus"]] == sorted(kernel["online"])
    # an affinity mask keeps CPUs that went offline, and starts without isolated CPUs
    assert cpus_of(topo["allowed"]) == (cpus_of(observed["allowed"]) & kernel["online"]) | kernel["isolated"]
    assert {row["cpu"] for row in topo["cpus"] if row["allowed"]} == cpus_of(topo["allowed"])
    assert (topo["quota_cpus"], topo["remarks"]) == (4 if name == "cgroup" else None, [])
    assert any(not node["cpus"] for node in topo["nodes"]) == (name in ("memory", "hbm"))


@each("placed")
def test_ranks_run_on_the_expected_cpus(name, observed, options, expected):
    done = observed["placed"][options]
    assert done["plan"]["code"] == 0, done["plan"]["err"]
    ranks = json.loads(done["plan"]["out"])["ranks"]
    assert [frozenset(rank["cpus"]) for rank in ranks] == sets_of(expected)
    check_ranks(done["run"], sets_of(expected))
    for rank in ranks:
        env = done["run"]["ranks"][str(rank["rank"])]["env"]
        assert {name: env.get(name) for name in rank["env"]} == rank["env"]
        assert "GOMP_CPU_AFFINITY" in rank["env"]  # which the plan clears
        cpus = [cpu for part in env["OMPBIND_CPUS"].split(",") for cpu in sorted(cpus_of(part))]
        places = ",".join("{" + ",".join(map(str, sorted(cpus_of(place)))) + "}" for place in rank["places"])
        assert (cpus, env.get("OMP_PLACES", "")) == (rank["cpus"], places)


def check_ranks(run, sets):
    assert run["code"] == 0, run["err"]
    assert set(run["ranks"]) == {str(rank) for rank in range(len(sets))}
    assert [cpus_of(run["ranks"][str(rank)]["allowed"]) for rank in range(len(sets))] == sets


@each("memory_policies")
def test_memory_policies_of_ranks(name, observed, options, expected):
    done = observed["memory_policies"][options]
    assert done["code"] == 0, done["err"]
    ranks = [done["ranks"][rank] for rank in sorted(done["ranks"])]
    assert [re.match(r"(.*?) stack ", *rank["memory"])[1] for rank in ranks] == expected.split("|")
    why = "memory of NUMA node 1 is not allowed (cpuset.mems: 0)"
    assert (why in " ".join(done["err"].split())) == (name == "cgroup")


@each("refused")
def test_impossible_options_are_refused(name, observed, options, expected):
    done = observed["refused"][options]
    assert (done["code"], done["ranks"]) == (125, {})
    assert re.search(expected, " ".join(done["err"].split()))


PAUSED = [(name, number) for name, vm in MACHINES.items() for number in range(len(vm.paused))]


@pytest.mark.parametrize(("name", "number"), PAUSED)
def test_a_machine_that_changes_before_ranks_are_bound(name, observed, number):
    run, done = MACHINES[name].paused[number], observed["paused"][number]
    assert done["paused"], "the run did not wait when the machine changed"
    if run.code == 0:
        check_ranks(done, sets_of(run.expected))
        return
    # the error names the first rank that cannot be bound, and no later rank has started
    err = " ".join(done["err"].split())
    assert (done["code"], "Traceback" in err) == (125, False), err
    assert "the allowed CPUs have changed" in err
    assert re.search(run.expected, err)
    refused = int(re.search(r"rank (\d+): ", err)[1])
    assert all(int(rank) < refused for rank in done["ranks"]), done


CPUSET = f"""
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control &&
exec {shlex.quote(sys.executable)} -m pytest -q -n 0 -p no:cacheprovider --basetemp /tmp/cpuset
"""


def test_a_cpuset_of_version_2_that_changes_is_named():
    test = "tests/live/test_verify.py::test_a_cpuset_that_changes_is_named"
    topology = ("--topology", "sockets=1,cores=2,threads=1,numa=1")
    assert "1 passed" in run_in_machine(topology, "sh", "-c", f"{CPUSET.rstrip()} {test}")
