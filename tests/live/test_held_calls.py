"""Many calls at once in held ranks: each mask is right, no call fails or hangs, even if some are killed.

And a program that binds itself, GROMACS.
"""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

import pytest

from benchmarks.gmx import make_command, make_input, read_speed
from ompbind.cpuset import CpuSet
from tests.live.conftest import OMPBIND, ranks_of, read_masks, required, start_program, two_cpus, wait_until
from tests.live.not_held import NOT_HELD
from tests.long import rounds

CALLS = rounds(1600)
"""Calls of each of 12 threads; killed processes make more."""

CALLER = """
import ctypes, json, os, random, signal, sys, threading, time

usable, own, number = set(map(int, sys.argv[1].split(","))), os.sched_getaffinity(0), int(sys.argv[2])
call = ctypes.CDLL(None, use_errno=True).sched_setaffinity  # lets other threads run meanwhile
wrong, failed = [], []

def bind(choose):
    before = os.sched_getaffinity(0)
    asked = sum(1 << cpu for cpu in (*usable, 1023) if choose.random() < 0.5)  # the last does not exist
    cpus = {cpu for cpu in usable if asked >> cpu & 1}
    target = choose.choice((0, threading.get_native_id()))
    error = ctypes.get_errno() if call(target, 128, asked.to_bytes(128, "little")) else 0
    expected, found = (cpus & own or own) if cpus else before, os.sched_getaffinity(0)
    if error != (0 if cpus else 22):
        failed.append(error)
    if found != expected:
        wrong.append((bin(asked), [*found]))

def bind_often(seed):
    choose = random.Random(seed)
    for _ in range(number):
        bind(choose)

def kill_often():
    "Kill processes that call, until this pipe has no writer."
    killed, choose = 0, random.Random(0)
    while True:
        child = os.fork()
        if not child:
            while True:
                bind(choose)
        time.sleep(choose.random() * 0.003)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed += 1
        os.set_blocking(done, False)
        try:
            os.read(done, 1)
            return killed
        except BlockingIOError:
            pass

done, threads_run = os.pipe()
if not (killer := os.fork()):
    os.close(threads_run)
    os._exit(min(255, kill_often()))
os.close(done)
threads = [threading.Thread(target=bind_often, args=(seed,)) for seed in range(6)]
for each in threads:
    each.start()
for each in threads:
    each.join()
os.close(threads_run)
killed = os.waitstatus_to_exitcode(os.waitpid(killer, 0)[1])
print(json.dumps({"wrong": wrong[:9], "failed": failed[:9], "killed": killed}), flush=True)
"""


def look_outside(run, cpus_of_ranks):
    """Read the masks of all threads of both ranks while they run; return how many, and the wrong ones."""
    ranks = wait_until(lambda: len(found := ranks_of(run)) == 2 and found, "both ranks")
    allowed, seen, wrong = dict(zip(ranks, cpus_of_ranks, strict=True)), 0, []
    while run.poll() is None:
        time.sleep(0.02)  # the ranks are to have their CPUs
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):  # it has just exited
                if (rank := os.getpgid(int(pid))) in allowed:
                    masks = read_masks(pid).values()
                    wrong += [mask for mask in masks if not {*CpuSet.from_list(mask)} <= allowed[rank]]
                    seen += len(masks)
    return seen, wrong


def test_calls_at_once_in_held_ranks_get_right_masks_while_processes_are_killed(tmp_path):
    """Rank 0 has all CPUs but one, rank 1 has all: calls ask for some of them, others too, or only others."""
    two_cpus()
    cpus = sorted(os.sched_getaffinity(0))[:3]
    less, text = ",".join(map(str, cpus[:-1])), ",".join(map(str, cpus))
    report = tmp_path / "report.json"
    options = ("--hold", "--share", "-m", f"{less}|{text}", "-n", "2", "--report", str(report))
    command = (sys.executable, "-I", "-S", "-c", CALLER, text, str(CALLS))
    with start_program(OMPBIND, "run", *options, "--timeout", str(60 + CALLS / 50), "--", *command) as run:
        seen, wrong = look_outside(run, [{*cpus[:-1]}, {*cpus}])
        output, messages = run.communicate()
    assert run.returncode == 0, messages
    results = [json.loads(line) for line in output.splitlines()]
    assert len(results) == 2
    assert not [result for result in results if result["wrong"] or result["failed"] or not result["killed"]]
    assert json.loads(report.read_text())["held"]["calls"] >= 12 * CALLS
    assert seen > 20
    assert not wrong


def test_the_tests_that_must_fail_with_hold_exist():
    names = [name.split("::") for name, _, _ in NOT_HELD]
    texts = {file: Path(__file__).with_name(file).read_text() for file, _ in names}
    assert not [name for file, name in names if f"\ndef {name}(" not in texts[file]]


@pytest.mark.alone
@pytest.mark.part("programs")
def test_two_runs_of_gromacs_that_bind_themselves_stay_on_their_cpus_and_are_faster(ompbind, tmp_path):
    two_cpus()
    required("gmx")
    plan = json.loads(ompbind("plan", "-n", "2", "-c", "1", "--format", "json").stdout)
    cpus = [{*rank["cpus"]} for rank in plan["ranks"]]
    make_input(tmp_path)
    speeds = {"--hold": [], "--no-hold": []}
    for option in [*speeds] * 5:
        with start_program(*make_command(300, option), cwd=tmp_path) as run:
            seen, wrong = look_outside(run, cpus)
            messages = run.communicate()[1]
        assert run.returncode == 0, messages
        assert seen > 20
        assert bool(wrong) == (option == "--no-hold"), "-pin on binds threads to other CPUs"
        speeds[option].append(read_speed(tmp_path))
    assert median(speeds["--hold"]) >= 1.5 * median(speeds["--no-hold"])
