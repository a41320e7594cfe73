"""Processes that do not belong to a run are never signalled, whatever is killed and whatever /proc shows."""

import os
import shlex
import signal
import subprocess
import sys

import pytest

from ompbind.execution import orphans
from ompbind.procfs.reader import read_stat
from tests.live.conftest import OMPBIND, children_of, is_alive, required
from tests.live.other_user import unavailable

pytestmark = pytest.mark.usefixtures("stranger")

INNER = f"""
{shlex.quote(OMPBIND)} run -n 2 --grace 0.3 -- sleep 300 &
for _ in $(seq 40); do sleep 301 & done
wait %1; echo $? >$DIRECTORY/code
sleep 302
"""
"""Process 1 of a PID namespace. The next process is ompbind; after the witnesses come other processes."""

OUTER = r"""
import os, signal, subprocess, sys, time
def read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}") as file:
            return file.read().replace("\0", " ").strip()
    except OSError:
        return ""
def find(name, text):
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and read(pid, name) == text]
def wait_for(holds):
    while not holds():
        time.sleep(0.02)
decoys = os.fork()
if not decoys:
    any(not os.fork() for _ in range(60))
    time.sleep(300)
assert decoys == 2, decoys
subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", sys.argv[1]])
wait_for(lambda: len(find("cmdline", "sleep 301")) == 40 and len(find("cmdline", "sleep 300")) == 2)
(supervisor,) = find("comm", "rank-supervisor")
os.kill(supervisor, signal.SIGKILL)
wait_for(lambda: find("cmdline", "sleep 302"))
code = open(os.environ["DIRECTORY"] + "/code").read().strip()
print(len(find("cmdline", "sleep 300")), len(find("cmdline", "sleep 301")), code)
"""
"""Process 1 of a PID namespace around that one, which sees the same /proc. Process 2 has children there."""


@pytest.mark.two_cpus
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces")
def test_no_process_is_killed_that_only_has_the_number_of_a_child_in_a_foreign_proc(scene):
    """The inner process 2 is ompbind; in /proc, process 2 has children with the numbers of 40 witnesses."""
    required("unshare")
    namespace = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if subprocess.run([*namespace, "true"], capture_output=True).returncode:
        unavailable("needs namespaces, which takes root or user namespaces")
    command = [*namespace, sys.executable, "-I", "-S", "-c", OUTER, INNER]
    done = subprocess.run(command, env=scene.environment(), capture_output=True, text=True, timeout=30)
    assert done.stdout == "0 40 125\n", done.stderr
    assert "was killed by SIGKILL; all ranks were killed" in done.stderr


def test_children_that_ompbind_had_before_it_started_are_left_alone(scene):
    """As in a script that starts a program in the background and then executes ompbind."""
    script = 'setsid sleep 300 & echo $! >"$DIRECTORY/mine"; exec "$@"'
    rank = 'touch "$1/up"; setsid sleep 300 & sleep 300'
    process = scene.begin(*scene.command("sh", "-c", rank), before=("sh", "-c", script, "sh"))
    scene.wait_for("up")
    (mine,) = scene.pids("mine")
    (supervisor,) = {*children_of(process.pid)} - {mine}
    os.kill(supervisor, signal.SIGKILL)
    assert process.wait(10) == 125
    assert list(scene.find()) == [mine]


@pytest.mark.parametrize("lacks", ["", "pidfd_open"])
def test_a_pid_that_belongs_to_another_process_than_listed_is_not_signalled(monkeypatch, lacks):
    if lacks:
        monkeypatch.delattr(os, lacks)
    with subprocess.Popen(["sleep", "300"]) as process:
        listed = read_stat(process.pid)
        other = listed.replace(start_ticks=listed.start_ticks - 1)
        assert not orphans.signal_listed(process.pid, other, signal.SIGKILL)
        assert is_alive(process.pid)
        assert orphans.signal_listed(process.pid, listed, signal.SIGKILL)
    assert not orphans.signal_listed(process.pid, listed, signal.SIGKILL)
