"""Systems without some features of Linux: runs start, stop and clean up, within process groups."""

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
    marker = tmp_path / "started"
    other = f"touch {marker}; exec sleep 300"
    script = f"[ $RANK = 0 ] || {{ {other}; }}; while [ ! -e {marker} ]; do sleep 0.02; done; exit 3"
    process = begin(lacks, "run", "-n", "2", "--", "sh", "-c", script)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 3
    assert "rank 0" in stderr
    assert "stopping rank 1 with SIGTERM" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("lacks", WITHOUT)
def test_processes_in_the_group_of_a_rank_are_killed_with_it(lacks):
    process = begin(lacks, "run", "--grace", "0.5", "--", "sh", "-c", "trap '' TERM; sleep 300 & echo $!")
    stdout, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (0, "")
    assert not is_alive(stdout.strip())


@pytest.mark.parametrize("lacks", WITHOUT)
def test_nothing_is_left_when_ompbind_is_killed(lacks):
    process = begin(lacks, "run", "-n", "2", "--", "sh", "-c", "sleep 300 & echo $$ $!; wait")
    pids = [int(word) for _ in range(2) for word in process.stdout.readline().split()]
    process.kill()
    process.communicate(timeout=20)
    wait_until(lambda: not [pid for pid in pids if is_alive(pid)], "all processes killed", 2)


def test_a_python_without_all_of_its_library_is_named():
    """As Debian's python3-minimal."""
    script = BEGIN.format("sys.modules['resource'] = None")
    command = [sys.executable, "-c", script, "run", "--", "true"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 125
    assert "error: the standard library of this Python has no module 'resource'" in done.stderr
    assert "install all of Python" in done.stderr


def test_output_through_ompbind_is_refused_without_epoll():
    process = begin("epoll", "run", "--output", "tag", "--", "true")
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 125
    assert "only Linux can forward the output of ranks" in stderr


def test_the_number_of_cores_is_unknown_without_psutil():
    hide = "import sys; sys.modules['psutil'] = None"
    read = "from ompbind.machine.sources.linux.reader import read_counts; print(*read_counts().remarks)"
    command = [sys.executable, "-c", f"{hide}; {read}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "only the number of CPUs is used" in done.stdout, done.stderr
