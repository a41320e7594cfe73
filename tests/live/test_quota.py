"""Runs in a cgroup with a CPU quota: threads, warnings, and throttling by the kernel."""

import json
import sys

import pytest

from ompbind import read_machine
from ompbind.cpuset import CpuSet
from tests.live.conftest import one_line, two_cpus
from tests.live.test_exec import OPEN_MPI, REPORT, read_report

BUSY = (sys.executable, "-c", "import time\nend = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass")


@pytest.mark.alone  # a rank that does not get its CPU is not throttled
def test_throttling_is_in_the_summary_and_in_the_report(ompbind, quota, tmp_path):
    report = tmp_path / "run.json"
    done = ompbind("run", "--report", str(report), "--", *BUSY, before=quota(0.25))
    assert done.returncode == 0
    assert "the CPU quota of 0.25 CPUs throttled this cgroup in" in one_line(done.stderr)
    throttling = json.loads(report.read_text())["throttling"]
    assert throttling["periods"] >= throttling["throttled_periods"] >= 3
    assert 0.1 < throttling["throttled_s"] < 60


HASH = """
import hashlib, sys, threading, time
end, data = time.monotonic() + 2.3, bytes(1 << 20)
def compute():
    while time.monotonic() < end: hashlib.sha256(data)  # without the lock of the interpreter
threads = [threading.Thread(target=compute) for _ in range(int(sys.argv[1]) - 1)]
for thread in threads: thread.start()
compute()
for thread in threads: thread.join()
"""


@pytest.mark.alone
def test_threads_that_competed_for_the_cpus_of_their_rank_are_named(ompbind, quota):
    before = quota(64)  # other processes wait for these
    for threads, options, is_told in ((8, (), True), (1, (), False), (8, ("-q",), False)):
        command = (*options, "-c", "1", "--share", "--", sys.executable, "-c", HASH, str(threads))
        done = ompbind("run", *command, before=before)
        text = f"threads of rank 0 competed for CPU {two_cpus()[0]}: -c gives each rank more cores"
        assert (done.returncode, text in one_line(done.stderr)) == (0, is_told), done.stderr
        assert "throttled" not in done.stderr


def test_containers_with_a_quota_and_cores_begin_at_the_cpu_of_their_number(ompbind, quota):
    """It is the number of the PID namespace. Runs that share a registry begin at the first free CPU."""
    cpus = two_cpus()
    if CpuSet(cpus) != read_machine().online:
        pytest.skip("needs a machine with two CPUs, all allowed")
    container = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c"]
    container += ['mount -t tmpfs none /dev/shm && exec "$@"', "sh"]
    show = "stat -L -c %i /proc/self/ns/pid; grep Cpus_allowed_list /proc/self/status"
    for variables in (["-u", "OMPBIND_RUNTIME_DIR"], []):
        before = [*quota(1), *container, "env", *variables]
        done = ompbind("run", "-c", "1", "--", "sh", "-c", show, before=before)
        number, *_, cpu = done.stdout.split()
        assert int(cpu) == cpus[int(number) % 2 if variables else 0]


@pytest.mark.parametrize("local_rank", [0, 1])
def test_ranks_that_a_launcher_has_bound_share_the_quota(ompbind, quota, local_rank):
    """Each rank plans alone; together they have no more threads than the quota has CPUs."""
    first, second = two_cpus()
    env = {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank)}
    before = [*quota(1.5), "taskset", "-c", str((first, second)[local_rank])]
    done = ompbind("exec", "--", sys.executable, "-c", REPORT, env=env, before=before)
    assert read_report(done)["OMPBIND_NUM_THREADS"] == "1"
    is_warned = "which is too little for 2 ranks" in one_line(done.stderr)
    assert is_warned == (local_rank == 0)
