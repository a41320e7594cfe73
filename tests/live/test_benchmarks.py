"""The benchmarks of launches and of quiet runs: they run, and measure what they say."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.quiet import read_activity, read_below
from benchmarks.timing import Failed, Hung, Where, time_once
from tests.live.conftest import is_alive, wait_until

FOLDER = Path(__file__).parents[2] / "benchmarks"


def run(script, *args, **env):
    return subprocess.run(
        [sys.executable, str(FOLDER / script), *args],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def may_compile():
    """Tell whether a compiler is here; CI has promised one."""
    return bool(os.environ.get("OMPBIND_TEST_ALL") or shutil.which("cc"))


def test_launches_are_measured():
    done = run("launch.py", "--rounds", "1", "--ranks", "1,2", "--only", "floor,ompbind")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("floor", "ompbind"))]
    assert [row[0] for row in rows] == (["floor", "ompbind"] if may_compile() else ["ompbind"]) * 2
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "not measured" in done.stdout


def test_without_a_compiler_the_rest_is_measured(tmp_path):
    options = ("--rounds", "1", "--ranks", "1", "--only", "floor,hydra,ompbind")
    done = run("launch.py", *options, PATH=str(tmp_path))
    assert "floor: left out, there is no C compiler" in done.stdout
    assert "hydra: left out, no mpiexec.hydra on the PATH" in done.stdout
    assert "\nompbind " in done.stdout
    assert done.returncode == 0


def test_an_unknown_launcher_is_refused_with_those_there_are():
    done = run("launch.py", "--only", "flor")
    assert done.returncode == 2
    assert "no launcher is called flor: there are floor, taskset" in done.stderr


def test_quiet_runs_are_measured():
    done = run("quiet.py", "--seconds", "0.3", "--ranks", "1,2")
    rows = [line.split() for line in done.stdout.splitlines() if line[:5].strip().isdigit()]
    assert [row[0] for row in rows] == ["1", "2"], done.stdout + done.stderr
    assert all(int(row[1]) >= 1 and float(row[2]) > 1 for row in rows)
    assert done.returncode == ("MISSED" in done.stdout)


@pytest.fixture
def where(tmp_path):
    return Where(env=dict(os.environ), said=str(tmp_path / "said"), timeout_s=0.5)


def test_what_hangs_is_killed_with_all_it_started(where, tmp_path):
    """Also what is in a process group of its own, as ranks of Open MPI are."""
    pids = tmp_path / "pids"
    code = f"set -m; sleep 60 & echo $! >{pids}; echo $$ >>{pids}; wait"
    with pytest.raises(Hung):
        time_once(["/bin/bash", "-c", code], where)
    started = [int(word) for word in pids.read_text().split()]
    assert len(started) == 2
    wait_until(lambda: not any(map(is_alive, started)), "all are killed")


def test_what_fails_says_why(where):
    with pytest.raises(Failed, match="^status 3 no cores$"):
        time_once(["/bin/sh", "-c", "echo no cores >&2; echo ---- >&2; exit 3"], where)


def test_what_ends_is_timed(where):
    sample = time_once(["/bin/sh", "-c", "sleep 0.2"], where)
    assert 0.2 <= sample.wall_s < 0.5
    assert 0 < sample.cpu_s < 0.1
    busy = time_once(["/bin/sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done"], where)
    assert busy.cpu_s > 3 * sample.cpu_s


def test_wake_ups_and_children_are_seen():
    code = "import time\nwhile True: time.sleep(0.01)"
    with subprocess.Popen(["/bin/sh", "-c", '"$0" -c "$1" & wait', sys.executable, code]) as process:
        try:
            below = wait_until(lambda: len(found := read_below(process.pid)) == 2 and found, "a child")
            time.sleep(0.3)
            shell, child = (read_activity([pid]) for pid in below)
            time.sleep(0.3)
            assert read_activity(below[:1]) == shell
            assert read_activity(below[1:])[0] > child[0] + 5
        finally:
            os.kill(below[1], 15)
