"""ompbind as process 1 of a PID namespace, as in a container: its signals have no default action."""

import os
import signal
import subprocess
import sys

import pytest

from tests.live.conftest import children_of, required, state_of, wait_until
from tests.live.other_user import unavailable
from tests.live.test_run import SIGNALLED

NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture(scope="module", autouse=True)
def _namespaces():
    required("unshare")
    if subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode:
        unavailable("needs PID namespaces, which takes root or user namespaces")


def outside(process):
    """Return the pid of process 1 of a namespace, as processes outside of it see it."""
    return wait_until(lambda: children_of(process.pid), "process 1")[0]


@pytest.mark.parametrize("last", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_signals_reach_all_ranks(start, last):
    command = (sys.executable, "-c", SIGNALLED)
    process = start("run", "-n", "2", "--share", "--", *command, before=NAMESPACE, up=2)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, last):
        os.kill(outside(process), number)
        assert sorted(process.stdout.readline() for _ in range(2)) == [f"0 {number}\n", f"1 {number}\n"]
    assert process.wait(20) == 100 + number


LEAVES_ZOMBIES = """
import os, signal
for _ in range(20):
    child = os.fork()
    if not child:
        os.fork() or os.setsid()
        os._exit(0)
    os.waitpid(child, 0)
os.write(1, b"up\\n")
signal.pause()
"""
"""A rank whose children leave daemons behind, which exit while the rank runs on."""


def test_processes_that_are_left_behind_do_not_become_zombies(start):
    """By ranks, and from outside, as by `podman exec`: then process 1 is their new parent."""
    process = start("run", "--", sys.executable, "-c", LEAVES_ZOMBIES, before=NAMESPACE, up=1)
    (supervisor,) = children_of(outside(process))
    wait_until(lambda: len(children_of(supervisor)) == 1, "zombies are reaped")
    (rank,) = children_of(supervisor)
    wait_until(lambda: state_of(rank) == "S", "the rank sleeps")  # it has just written its line
    assert children_of(rank) == []
    target = ("--target", str(outside(process)))
    enter = ("nsenter", "--preserve-credentials", "--user", "--pid", "--mount", *target)
    subprocess.run([*enter, "sh", "-c", "sleep 0.1 & sleep 300 &"], check=True, timeout=20)
    wait_until(lambda: len(set(children_of(outside(process))) - {supervisor}) == 1, "the zombie is reaped")
    os.kill(outside(process), signal.SIGTERM)
    assert process.wait(20) == 143


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_ranks_start_stops_ompbind(start, tmp_path, number):
    pipe = tmp_path / "file"
    os.mkfifo(pipe)
    process = start("run", "--env-file", str(pipe), "--", "true", before=NAMESPACE)
    with pipe.open("wb"):  # waits until ompbind has opened it
        os.kill(outside(process), number)
        assert process.wait(20) == 128 + number
