"""Systems without some features of Linux: runs start, stop and clean up, within process groups."""

import sys

import pytest

from tests.live.conftest import is_alive, run_program, start_program, wait_until

ALL = "del os.pidfd_open; sys.modules['_ctypes'] = None"  # no pidfds, no subreapers
BEGIN = "import os, select, sys; {}; from ompbind.__main__ import start; start()"


def words(lacks, *args):
    return (sys.executable, "-c", BEGIN.format(lacks), "run", *args)


@pytest.mark.two_cpus
def test_a_failing_rank_takes_its_group_and_the_others_down(tmp_path):
    script = f"""[ $RANK = 0 ] || {{ touch {tmp_path}/started; exec sleep 300; }}
        while [ ! -e {tmp_path}/started ]; do sleep 0.02; done; trap '' TERM; sleep 300 & echo $!; exit 3"""
    done = run_program(*words(ALL, "-n", "2", "--grace", "0.1", "--", "sh", "-c", script))
    assert (done.returncode, is_alive(done.stdout.strip())) == (3, False), done.stderr
    assert ("Traceback" in done.stderr, "stopping rank 1 with SIGTERM" in done.stderr) == (False, True)


@pytest.mark.parametrize("lacks", [*ALL.split("; "), ALL])
def test_nothing_is_left_when_ompbind_is_killed(lacks):
    process = start_program(*words(lacks, "-n", "2", "--", "sh", "-c", "sleep 300 & echo $$ $!; wait"))
    pids = [int(word) for _ in range(2) for word in process.stdout.readline().split()]
    process.kill()
    process.communicate(timeout=20)
    wait_until(lambda: not [pid for pid in pids if is_alive(pid)], "all processes killed", 5)


@pytest.mark.parametrize(("lacks", "message"), [
    ("sys.modules['resource'] = None", "this Python has no module 'resource'"),  # as Debian's python3-minimal
    ("del select.epoll", "only Linux can supervise ranks"),
])  # fmt: skip
def test_what_is_missing_is_named(lacks, message):
    done = run_program(*words(lacks, "--", "true"))
    assert (done.returncode, message in done.stderr) == (125, True), done.stderr
