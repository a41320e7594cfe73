"""`--memory`: what the kernel reports for real ranks, also if a container forbids memory policies."""

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import ompbind as package
from ompbind.execution.mempolicy import (
    read_policy,
    replace_unsupported_policies,
    restore_policy,
    temporary_policy,
)
from ompbind.planning.plan import MemoryPolicy
from ompbind.planning.request import MemoryMode
from ompbind.procfs.parsers import parse_numa_maps
from ompbind.procfs.reader import read_memory_map
from tests.live.conftest import OMPBIND, ranks_of, required, supervisor_of, two_cpus, wait_until

if not os.path.exists("/proc/self/numa_maps"):
    pytest.skip("this kernel knows no NUMA nodes", allow_module_level=True)

SANDBOX = str(Path(__file__).with_name("sandboxed.py"))
SHOW = ("cat", "/proc/self/numa_maps")
NODE = json.loads(
    subprocess.run([OMPBIND, "plan", "--format", "json"], capture_output=True, check=True, timeout=60).stdout
)["ranks"][0]["memory_nodes"]
SINGLE = pytest.mark.skipif(len(NODE) != 1, reason="the machine has several NUMA nodes")
NUMBER = NODE[0] if NODE else 0
IS_X86 = os.uname().machine == "x86_64" and sys.maxsize > 1 << 32
FILTERED = pytest.mark.skipif(not IS_X86, reason="the filter has the numbers of x86-64")


def policy_of(done):
    assert done.returncode == 0, done.stderr
    return parse_numa_maps(done.stdout).policy


@SINGLE
@pytest.mark.parametrize(
    ("mode", "expected"),
    [("bind", "bind"), ("preferred", "prefer"), ("interleave", "interleave")],
)
@pytest.mark.parametrize("verb", ["run", "exec"])
def test_the_memory_of_a_rank_has_its_policy(ompbind, verb, mode, expected):
    done = ompbind(verb, "--memory", mode, "--strict", "--", *SHOW)
    assert policy_of(done) == f"{expected}:{NUMBER}"
    memory = parse_numa_maps(done.stdout)
    assert memory.policies == (f"{expected}:{NUMBER}",)
    assert [node for node, _ in memory.anonymous_nodes] == [NUMBER]


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_by_default_nothing_is_set(ompbind, verb):
    assert policy_of(ompbind(verb, "--", *SHOW)) == "default"
    required("numactl")
    inherited = ompbind(verb, "--", *SHOW, before=("numactl", "--interleave=0"))
    assert policy_of(inherited) == "interleave:0"


@SINGLE
def test_the_variable_sets_the_same_policy(ompbind):
    assert policy_of(ompbind("run", "--", *SHOW, env={"OMPBIND_MEMORY": "bind"})) == f"bind:{NUMBER}"


@SINGLE
@pytest.mark.parametrize("own", ["default", "interleave", "bind"])
def test_ompbind_itself_keeps_its_policy(start, own):
    before = () if own == "default" else (required("numactl"), f"--{own.replace('bind', 'membind')}={NUMBER}")
    process = start("run", "-n", "2", "--memory", "preferred", "--", "sleep", "60", before=before)
    ranks = wait_until(lambda: len(ranks_of(process)) == 2 and ranks_of(process), "two ranks")
    own = f"{own}:{NUMBER}" if before else own
    # The supervisor has the policy of a rank while it starts this rank.
    supervisor = supervisor_of(process)
    wait_until(lambda: read_memory_map(supervisor).policy == own, "the supervisor has its own policy")
    seen = [read_memory_map(pid).policy for pid in (process.pid, supervisor, *ranks)]
    assert seen == [own, own, f"prefer:{NUMBER}", f"prefer:{NUMBER}"]


@SINGLE
def test_a_rank_with_the_terminal_has_its_policy_too(tmp_path):
    required("script")
    typed = tmp_path / "typed"
    command = f"{OMPBIND} run --share --memory bind -- cat /proc/self/numa_maps"
    done = subprocess.run(
        ["script", "-qec", command, str(typed)],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert parse_numa_maps(done.stdout.replace("\r", "")).policy == f"bind:{NUMBER}"


def filtered(error, call):
    """Return the words before a command that make a system call fail; skip if no filter can be set."""
    before = (sys.executable, SANDBOX, str(error), call, "--")
    done = subprocess.run([*before, "true"], capture_output=True, text=True, timeout=60)
    if done.returncode and not os.environ.get("OMPTEST_ALL"):
        pytest.skip(done.stderr)
    return before


@FILTERED
@pytest.mark.parametrize(
    ("error", "why"),
    [(errno.EPERM, "Operation not permitted"), (errno.ENOSYS, "Function not implemented")],
)
@pytest.mark.parametrize("verb", ["run", "exec"])
def test_if_policies_are_forbidden_ranks_start_without(ompbind, verb, error, why):
    before = filtered(error, "238")
    done = ompbind(verb, "--memory", "bind", "--", *SHOW, before=before)
    said = " ".join(done.stderr.split())
    assert policy_of(done) == "default"
    assert said.count(f"forbidden here (set_mempolicy: {why})") == 1
    assert "--memory bind will not be set for rank" in said
    assert "--cap-add SYS_NICE" in said
    strict = ompbind(verb, "--strict", "--memory", "bind", "--", "echo", "started", before=before)
    assert (strict.returncode, strict.stdout) == (125, "")
    assert f"(set_mempolicy: {why})" in " ".join(strict.stderr.split())


@FILTERED
def test_the_report_has_the_policy_that_was_really_set(ompbind, tmp_path):
    file = tmp_path / "run.json"
    options = ("--memory", "bind", "--report", str(file))
    ompbind("run", *options, "--", "true", before=filtered(errno.EPERM, "238"))
    plan = json.loads(file.read_text())["plan"]
    assert plan["ranks"][0]["memory"] is None
    assert "memory-unset" in {note["code"] for note in plan["notes"]}
    ompbind("run", *options, "--", "true")
    assert json.loads(file.read_text())["plan"]["ranks"][0]["memory"] == {"mode": "bind", "nodes": NODE}


@SINGLE
@FILTERED
def test_policies_are_set_even_if_they_cannot_be_read(ompbind):
    before = filtered(errno.EPERM, "239")
    assert policy_of(ompbind("run", "--memory", "bind", "--", *SHOW, before=before)) == f"bind:{NUMBER}"


NARROW = """
import ompbind
from ompbind.execution.mempolicy import replace_unsupported_policies
from ompbind.planning.plan import MemoryPolicy
from ompbind.planning.request import MemoryMode, Request
policy = MemoryPolicy(mode=MemoryMode.PREFERRED, nodes=({node}, {node} + 1), main_node={node})
plan = ompbind.make_plan(ompbind.read_machine(), Request(memory=MemoryMode.PREFERRED, strict={strict}))
plan = plan.replace(placements=(plan.placements[0].replace(memory=policy),), notes=())
adapted = replace_unsupported_policies(plan)
print(adapted.placements[0].memory.kernel_text, *(note.code for note in adapted.notes))
"""


@SINGLE
@FILTERED
def test_kernels_that_prefer_one_node_only_get_the_first():
    before = filtered(errno.EINVAL, "238=5")
    for strict in (False, True):
        code = NARROW.format(node=NUMBER, strict=strict)
        done = subprocess.run(
            [*before, sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
        if strict:
            assert "this kernel can prefer only one NUMA node" in done.stderr
        else:
            assert done.stdout.split() == [f"prefer:{NUMBER}", "memory-narrowed"], done.stderr


@SINGLE
@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((NUMBER, NUMBER + 1), "the kernel allows only"),
        ((NUMBER + 1,), f"memory of NUMA node {NUMBER + 1} is not available"),
    ],
)
def test_a_policy_that_cannot_be_set_is_a_warning(nodes, message):
    before = read_policy()
    plan = package.make_plan(package.read_machine(), package.Request(memory=MemoryMode.BIND))
    policy = MemoryPolicy(mode=MemoryMode.BIND, nodes=nodes, main_node=nodes[0])
    plan = plan.replace(placements=(plan.placements[0].replace(memory=policy),), notes=())
    adapted = replace_unsupported_policies(plan)
    assert adapted.placements[0].memory is None
    assert message in adapted.notes[0].text
    assert "allowed here: NUMA node" in adapted.notes[0].text
    assert read_policy() == before
    with pytest.raises(package.LaunchError, match=message):
        replace_unsupported_policies(plan.replace(request=plan.request.replace(strict=True)))


@SINGLE
@pytest.mark.parametrize("mode", [MemoryMode.BIND, MemoryMode.PREFERRED, MemoryMode.INTERLEAVE])
def test_the_previous_policy_is_restored(mode):
    first = read_policy()
    outer = MemoryPolicy(mode=mode, nodes=(NUMBER,), main_node=NUMBER)
    with temporary_policy(outer):
        outer_policy = read_policy()
        assert outer_policy.mode == outer.kernel_mode
        with temporary_policy(outer.replace(mode=MemoryMode.BIND)):
            assert read_policy().mode == 2
        assert read_policy() == outer_policy
    assert read_policy() == first
    restore_policy(None)
    assert read_policy().mode == 0


def spawned_policy():
    return policy_of(subprocess.run(SHOW, capture_output=True, text=True, timeout=60))


@SINGLE
def test_workers_of_python_programs_have_the_policy():
    plan = package.make_plan(package.read_machine(), package.Request(memory=MemoryMode.BIND, strict=True))
    before = read_policy()
    with package.placed(plan, 0):
        assert spawned_policy() == f"bind:{NUMBER}"
    assert read_policy() == before
    assert spawned_policy() == "default"
    with pytest.raises(ZeroDivisionError), package.placed(plan, 0):
        raise ZeroDivisionError
    assert read_policy() == before


@SINGLE
def test_workers_without_the_policy_are_warned_about():
    plan = package.make_plan(package.read_machine(), package.Request(memory=MemoryMode.BIND))
    policy = MemoryPolicy(mode=MemoryMode.BIND, nodes=(NUMBER + 1,), main_node=NUMBER + 1)
    plan = plan.replace(placements=(plan.placements[0].replace(memory=policy),))
    with (
        pytest.warns(RuntimeWarning, match="--memory bind will not be set for rank 0") as caught,
        package.placed(plan, 0),
    ):
        assert spawned_policy() == "default"
    assert {Path(warning.filename).name for warning in caught} == {Path(__file__).name}


@SINGLE
def test_another_thread_cannot_restore_the_policy():
    plan = package.make_plan(package.read_machine(), package.Request(memory=MemoryMode.BIND))
    assert two_cpus()
    left = []

    def begin():
        inside = package.placed(plan, 0)
        inside.__enter__()
        left.append(inside)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    before = read_policy()
    with pytest.warns(RuntimeWarning, match="set by another thread, which keeps it"):
        left[0].__exit__(None, None, None)
    assert read_policy() == before
