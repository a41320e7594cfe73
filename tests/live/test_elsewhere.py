"""Systems that lack what Linux has: runs still start, end and clean up, as far as groups of processes go."""

import subprocess
import sys

import pytest

from tests.live.conftest import clean_environment, is_alive, wait_until

WITHOUT = {
    "pidfds": "del os.pidfd_open",
    "epoll": "del select.epoll",
    "subreapers": "sys.modules['_ctypes'] = None",
    "all of it": "del os.pidfd_open; del select.epoll; sys.modules['_ctypes'] = None",
}
BEGIN = "import os, select, sys; {}; from ompbind.__main__ import start; start()"


def begin(lacks, *args):
    script = BEGIN.format(WITHOUT[lacks])
    return subprocess.Popen(
        [sys.executable, "-c", script, *args],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("lacks", WITHOUT)
def test_a_failing_rank_takes_the_others_down(lacks, tmp_path):
    there = tmp_path / "there"
    other = f"touch {there}; exec sleep 300"
    script = f"[ $RANK = 0 ] || {{ {other}; }}; while [ ! -e {there} ]; do sleep 0.02; done; exit 3"
    process = begin(lacks, "run", "-n", "2", "--", "sh", "-c", script)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 3
    assert "rank 0" in said
    assert "stopping rank 1 with SIGTERM" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("lacks", WITHOUT)
def test_what_a_rank_leaves_in_its_group_goes_with_it(lacks):
    process = begin(lacks, "run", "--grace", "0.5", "--", "sh", "-c", "trap '' TERM; sleep 300 & echo $!")
    told, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, "")
    assert not is_alive(told.strip())


@pytest.mark.parametrize("lacks", WITHOUT)
def test_nothing_is_left_when_ompbind_is_killed(lacks):
    process = begin(lacks, "run", "-n", "2", "--", "sh", "-c", "sleep 300 & echo $$ $!; wait")
    pids = [int(word) for _ in range(2) for word in process.stdout.readline().split()]
    process.kill()
    process.communicate(timeout=20)
    wait_until(lambda: not [pid for pid in pids if is_alive(pid)], "all of it gone", 2)


def test_output_through_ompbind_is_refused_without_epoll():
    process = begin("epoll", "run", "--output", "tag", "--", "true")
    _, said = process.communicate(timeout=20)
    assert process.returncode == 125
    assert "on Linux only" in said
