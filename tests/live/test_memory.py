"""`--memory`: what the kernel reports for real ranks, also if a container forbids memory policies."""

import os
import subprocess
from pathlib import Path

import pytest

import ompbind as package
from ompbind.execution import memory_policy
from ompbind.planning.plan import MemoryPolicy
from ompbind.planning.request import MemoryMode
from ompbind.procfs.parsers import parse_numa_maps
from ompbind.procfs.reader import read_memory_map
from tests.live.conftest import ranks_of, required, supervisor_of, wait_until

if not os.path.exists("/proc/self/numa_maps"):
    pytest.skip("needs a kernel with NUMA nodes", allow_module_level=True)

SHOW = ("cat", "/proc/self/numa_maps")
NODES = package.make_plan(package.read_machine(), package.Request()).placements[0].memory_nodes
SINGLE = pytest.mark.skipif(len(NODES) != 1, reason="the machine has several NUMA nodes")
NODE = min(NODES, default=0)


def policy_of(done):
    assert done.returncode == 0, done.stderr
    return parse_numa_maps(done.stdout).policy


def make_plan(*nodes, mode=MemoryMode.BIND, strict=False):
    plan = package.make_plan(package.read_machine(), package.Request(memory=mode, strict=strict))
    if not nodes:
        return plan
    policy = MemoryPolicy(mode=mode, nodes=nodes, main_node=nodes[0])
    return plan.replace(placements=(plan.placements[0].replace(memory=policy),), notes=())


@SINGLE
@pytest.mark.parametrize(("verb", "mode", "expected"), [
    ("run", "bind", "bind"), ("run", "interleave", "interleave"), ("exec", "preferred", "prefer"),
    ("run", "weighted", "weighted interleave"),
])  # fmt: skip
def test_the_memory_of_a_rank_has_its_policy_or_the_kernel_is_too_old(ompbind, verb, mode, expected):
    done = ompbind(verb, "--strict", "--", *SHOW, env={"OMPBIND_MEMORY": mode})
    if mode == "weighted" and not os.path.exists("/sys/kernel/mm/mempolicy/weighted_interleave"):
        assert (done.returncode, done.stdout) == (125, "")
        assert "Linux 6.9" in done.stderr
        assert "--memory interleave" in done.stderr
        return
    assert policy_of(done) == f"{expected}:{NODE}"
    assert [node for node, _ in parse_numa_maps(done.stdout).nodes] == [NODE]


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_by_default_nothing_is_set(ompbind, verb):
    assert policy_of(ompbind(verb, "--", *SHOW)) == "default"
    required("numactl")
    inherited = ompbind(verb, "--", *SHOW, before=("numactl", "--interleave=0"))
    assert policy_of(inherited) == "interleave:0"


@pytest.mark.two_cpus
@SINGLE
@pytest.mark.parametrize("own", ["default", "interleave"])
def test_ompbind_itself_keeps_its_policy(start, own):
    before = () if own == "default" else (required("numactl"), f"--{own}={NODE}")
    process = start("run", "-n", "2", "--memory", "preferred", "--", "sleep", "60", before=before)
    ranks = wait_until(lambda: len(ranks_of(process)) == 2 and ranks_of(process), "two ranks")
    own = f"{own}:{NODE}" if before else own
    # The supervisor has the policy of a rank while it starts this rank.
    supervisor = supervisor_of(process)
    wait_until(lambda: read_memory_map(supervisor).policy == own, "the supervisor has its own policy")
    seen = [read_memory_map(pid).policy for pid in (process.pid, supervisor, *ranks)]
    assert seen == [own, own, f"prefer:{NODE}", f"prefer:{NODE}"]


@SINGLE
@pytest.mark.parametrize(("nodes", "message"), [
    ((NODE, NODE + 1), "the kernel allows only"),
    ((NODE + 1,), f"memory of NUMA node {NODE + 1} is not available"),
])  # fmt: skip
def test_a_policy_that_cannot_be_set_is_a_warning(nodes, message):
    before = memory_policy.read_policy()
    policy = MemoryPolicy(mode=MemoryMode.BIND, nodes=nodes, main_node=nodes[0])
    found, why = memory_policy.try_policy(policy)
    assert (found, message in why, memory_policy.read_policy()) == (None, True, before)
    warning = pytest.warns(RuntimeWarning, match=f"--memory bind will not be set for rank 0.*{message}")
    with warning as caught, package.placed(make_plan(*nodes), 0):
        assert spawned_policy() == "default"
    assert {Path(each.filename).name for each in caught} == {Path(__file__).name}
    with pytest.raises(package.LaunchError, match=message), package.placed(make_plan(*nodes, strict=True), 0):
        pass


def spawned_policy():
    return policy_of(subprocess.run(SHOW, capture_output=True, text=True, timeout=60))


@SINGLE
@pytest.mark.parametrize("mode", [MemoryMode.BIND, MemoryMode.PREFERRED, MemoryMode.INTERLEAVE])
def test_workers_of_python_programs_have_the_policy_and_the_previous_one_is_restored(mode):
    first = memory_policy.read_policy()
    outer = MemoryPolicy(mode=mode, nodes=(NODE,), main_node=NODE)
    with memory_policy.temporary_policy(outer):
        before = memory_policy.read_policy()
        assert before.mode == outer.kernel_mode
        with package.placed(make_plan(strict=True), 0):
            assert spawned_policy() == f"bind:{NODE}"
        assert memory_policy.read_policy() == before
        package.bind_process(make_plan(), 0)
        assert spawned_policy() == f"bind:{NODE}"
        package.unbind()
        assert memory_policy.read_policy() == before
        with pytest.raises(ZeroDivisionError), package.placed(make_plan(), 0):
            raise ZeroDivisionError
        assert memory_policy.read_policy() == before
    assert (memory_policy.read_policy(), spawned_policy()) == (first, "default")
    memory_policy.restore_policy(None)
    assert memory_policy.read_policy().mode == 0
    assert not memory_policy.read_policy_support(package.read_machine(), mode).prefers_one_node
