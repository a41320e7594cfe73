"""`ompbind rebind` with real processes: masks are read back from /proc."""

import json
import os
import sys

import pytest

from ompbind.cli import rebind_processes as rebind
from ompbind.cli.rebind_processes import WantedCpus, rebind_processes
from ompbind.cpuset import CpuSet
from tests.live.conftest import WAIT, allowed_list, children_of, ranks_of, read_masks, two_cpus
from tests.live.other_user import NOBODY, as_user
from tests.live.test_inspect import FORKS, child, one_line, region

__all__ = ["child", "region"]  # fixtures

STARTS_THREADS = """
import os, threading
os.sched_setaffinity(0, [{}])
def start():
    while True:
        thread = threading.Thread(target=int); thread.start(); thread.join()
for _ in range(4): threading.Thread(target=start, daemon=True).start()
"""


def masks_of(pid):
    return {*read_masks(pid).values()}


def test_workers_of_a_narrowed_parent_are_repaired(child, region, ompbind):
    first, second = two_cpus()
    parent = child(region + FORKS, OMP_PROC_BIND="true").pid
    workers = children_of(parent)
    command = ("rebind", str(parent), "-m", f"{first},{second}")
    shown = ompbind(*command, "--dry-run")
    assert (shown.returncode, "dry run: nothing was changed" in shown.stdout) == (0, True)
    assert masks_of(workers[0]) == {str(first)}
    done = ompbind(*command)
    assert done.returncode == 0, done.stderr
    assert [masks_of(pid) for pid in workers] == [{str(CpuSet((first, second)))}] * 4
    table = [line.split() for line in done.stdout.splitlines()]
    assert [["0", str(pid), "python", "1", str(first), allowed_list(pid)] for pid in workers] == table[2:6]
    why = "libgomp applies OMP_PROC_BIND=true again to threads and programs that start later"
    assert f"note: python ({parent}) and 4 more: {why}" in one_line(done)
    assert "are restricted to CPU" not in ompbind("inspect", str(parent)).stdout


def test_busy_children_become_ranks(child, ompbind):
    first, second = two_cpus()
    parent = child(FORKS).pid
    *busy, waiting = children_of(parent)
    done = ompbind("rebind", "-n", "2", str(parent), "-m", f"{first}|{second}", "--format", "json")
    record = json.loads(done.stdout)
    assert (done.returncode, record["schema"], record["dry_run"]) == (0, "ompbind-rebind/1", False)
    found = {each["pid"]: each["rank"] for each in record["processes"] if each["bound"]}
    assert found.keys() == {parent, *busy, waiting}
    assert (found[parent], found[waiting], sorted(map(str, found.values()))[:2]) == (None, None, ["0", "1"])
    masks = {0: str(first), 1: str(second), None: str(CpuSet((first, second)))}
    assert {pid: masks_of(pid) for pid in found} == {pid: {masks[rank]} for pid, rank in found.items()}
    counted = ompbind("rebind", "-c", "1", str(parent), "--dry-run")
    assert ("note: -c 1 is a number of cores; -m 1 is CPU 1" in one_line(counted)) == (first != 1)
    few = ompbind("rebind", "-n", "5", str(parent))
    assert (few.returncode, "has 4 child processes, fewer than -n 5" in one_line(few)) == (2, True)


def test_ranks_of_a_run_get_what_their_plan_says(start, ompbind):
    first, second = two_cpus()
    code = f"import os\nos.sched_setaffinity(0, [{first}])\n{WAIT}"
    options = ("--share", "-m", f"{first}|{second}", "-n", "2", "--run-id", "moved")
    run = start("run", *options, "--", sys.executable, "-c", code, up=2)
    done = ompbind("rebind", "moved")
    assert done.returncode == 0, done.stderr
    ranks = ranks_of(run)
    assert [masks_of(pid) for pid in ranks] == [{str(first)}, {str(second)}]
    is_hidden = not os.path.exists("/proc/1/status")
    for words, text in (
        ("moved -m 0", "--mask 0 has no effect with a run"), ("", "no process or run is given"),
        (f"{run.pid}", "is ompbind's: it supervises ranks with a plan"),
        (f"moved {ranks[0]}", "processes and runs cannot be combined"),
        ("{} {} -n 3".format(*ranks), "-n 3, but 2 processes are named"),
        ("1", "process 1 does not exist or is hidden" if is_hidden else "process 1 starts all others"),
    ):  # fmt: skip
        refused = ompbind("rebind", *words.split())
        assert (refused.returncode, text in one_line(refused)) == (2, True), refused.stderr


@pytest.mark.parametrize("option", ["--hold", "--hold=fixed"])
def test_ranks_that_are_held_keep_their_cpus(start, ompbind, option):
    first, second = two_cpus()
    words = ("--share", "-m", f"{first}|{second}", "-n", "2", "--run-id", "stays", option)
    run = start("run", *words, "--", "sh", "-c", "sleep 300 & echo up; wait", up=2)
    (pid, other), shown = ranks_of(run), ompbind("ps")
    assert [line.split()[6] for line in shown.stdout.splitlines() if line.startswith("stays")] == [option]
    for target in (pid, *children_of(pid)):
        done = ompbind("rebind", str(target), "-m", f"{first},{second}", "--share")
        text = f"rank 0 of run stays is held on CPU {first}: its program cannot bind threads"
        assert (done.returncode, text in one_line(done)) == (2, True), done.stderr
    assert masks_of(pid) == {str(first)}
    assert ompbind("rebind", str(pid), "-m", str(first), "--share").returncode == 0
    os.sched_setaffinity(pid, {second})
    seen = ompbind("inspect", "stays")
    assert "a process outside of the run changed the mask" in one_line(seen), seen
    assert ompbind("rebind", "stays").returncode == 0
    assert [masks_of(each) for each in (pid, other)] == [{str(first)}, {str(second)}]


def test_threads_that_start_meanwhile_are_bound_too(child, ompbind):
    first, second = two_cpus()
    process = child(STARTS_THREADS.format(first))
    assert ompbind("rebind", str(process.pid), "-m", str(second)).returncode == 0
    assert masks_of(process.pid) == {str(second)}


def test_a_mask_that_the_kernel_refuses_is_reported(child):
    pid, nowhere = child("").pid, CpuSet((4000,))
    wanted = WantedCpus(rank=0, cpus=nowhere, masks=frozenset((nowhere,)))
    (found,) = rebind_processes({pid: wanted}, dry_run=False)
    assert not found.is_bound
    assert found.failures == ("cannot bind to CPU 4000: offline or no longer allowed",)


def test_processes_of_other_users_are_refused(child, ompbind, public_ompbind):
    pid = child("").pid
    done = ompbind("rebind", str(pid), before=as_user(NOBODY), program=public_ompbind)
    assert (done.returncode, f"process {pid} belongs to another user" in one_line(done)) == (2, True)


def test_another_process_with_the_pid_of_a_process_that_has_exited_keeps_its_cpus(child, monkeypatch):
    """The PID is given to another process between two lists of processes, which has another start time."""
    first, second = two_cpus()
    pid, read = child("").pid, rebind.read_processes
    os.sched_setaffinity(pid, {first})
    lists = []

    def read_twice():
        stats = read()
        if lists:
            os.sched_setaffinity(pid, {first})
            stats[pid] = stats[pid].replace(start_ticks=stats[pid].start_ticks + 1)
        lists.append(stats[pid])
        return stats

    monkeypatch.setattr(rebind, "read_processes", read_twice)
    monkeypatch.setattr(rebind, "read_stat", lambda tid: lists[-1])
    wanted = WantedCpus(rank=0, cpus=CpuSet((second,)), masks=frozenset((CpuSet((second,)),)))
    assert rebind_processes({pid: wanted}, dry_run=False) == ()
    assert (len(lists), os.sched_getaffinity(pid)) == (2, {first})
