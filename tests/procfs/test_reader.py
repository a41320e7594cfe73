"""The reader of live processes: facts of real processes."""

import os
import signal
import subprocess
import sys

import pytest

from ompbind.cpuset import EMPTY
from ompbind.procfs import reader
from ompbind.procfs.process_state import read_process


@pytest.fixture
def child():
    """A process that has a handler for SIGUSR1 and waits."""
    code = "import signal, sys; signal.signal(signal.SIGUSR1, print); print(flush=True); sys.stdin.read()"
    command, pipe = [sys.executable, "-c", code, ""], subprocess.PIPE
    with subprocess.Popen(command, env={"ODD": "=="}, stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        yield process


def test_facts_of_a_live_process(child):
    pid = child.pid
    processes = reader.read_processes()
    assert (processes[pid].parent, processes[pid].group) == (os.getpid(), os.getpgid(0))
    assert pid in reader.read_children()
    assert reader.read_environ(pid)["ODD"] == "=="
    assert reader.read_command_line(pid) == tuple(child.args)
    assert signal.SIGUSR1 in reader.read_caught_signals(pid)
    assert signal.SIGUSR2 not in reader.read_caught_signals(pid)
    assert 0 <= reader.read_age_s(pid) < 60
    assert reader.read_owner(pid) == os.getuid()
    assert reader.list_threads(pid) == [pid]
    assert set(reader.read_affinity(pid)) == os.sched_getaffinity(pid)
    assert reader.read_mapped_files(pid, lambda path: path == os.path.realpath(sys.executable))
    if os.path.exists("/proc/self/numa_maps"):  # not without NUMA support
        memory = reader.read_memory_map(pid)
        assert memory.policy
        assert sum(size for _, size in memory.nodes) > 1 << 20


def test_facts_of_a_process_that_does_not_exist(child):
    child.kill()
    child.wait()
    pid = child.pid
    assert pid not in reader.read_processes()
    assert reader.read_stat(pid) is reader.read_age_s(pid) is reader.read_owner(pid) is None
    assert reader.read_environ(pid) == {}
    assert (reader.read_command_line(pid), reader.list_threads(pid)) == ((), [])
    assert (reader.read_caught_signals(pid), reader.read_affinity(pid)) == (set(), EMPTY)
    assert (reader.read_mapped_files(pid, bool), reader.read_memory_policy(pid)) == ((), None)
    assert read_process(pid, bool, bool) is reader.read_memory_map(pid) is None
    with pytest.raises(OSError, match="No such"):
        reader.read_status(pid)


def test_an_exited_process_is_not_among_the_processes_and_an_empty_environment_is_none():
    with subprocess.Popen(["cat"], env={}, stdin=subprocess.PIPE) as process:
        assert reader.read_environ(process.pid) is None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert reader.read_stat(process.pid).state == "Z"
        assert process.pid not in reader.read_processes()
