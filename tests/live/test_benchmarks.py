"""The benchmarks of launches and of quiet runs: they run, and measure what they say."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.arms import MAKERS
from benchmarks.meeting import VARIABLE, Task, sum_ticks, time_ranks
from benchmarks.quiet import read_activity, read_below
from benchmarks.timing import Failed, Hung, Where, time_once
from tests.live.conftest import is_alive, wait_until

pytestmark = pytest.mark.alone
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


@pytest.mark.parametrize(
    "arms", [("ompbind", "taskset"), pytest.param(tuple(MAKERS), marks=pytest.mark.long)]
)
def test_the_effect_of_binding_is_measured_in_every_arm(arms):
    options = ("--rounds", "1", "--seconds", "0.02", "--work", "regions,server", "--only", ",".join(arms))
    done = run("effect.py", *options)
    if "only one core" in done.stdout:
        pytest.skip("one core is too few for two ranks")
    assert (done.returncode, done.stderr) == (0, "")
    left_out = {line.partition(":")[0] for line in done.stdout.splitlines() if ": left out, " in line}
    for work in ("regions", "server"):
        table = done.stdout.partition(f"\n{work}, ")[2].partition("\n\n")[0].splitlines()[2:]
        told = [line.split()[0] for line in table if line.split()[0] in MAKERS and line.split()[1] != "is"]
        assert told == ([] if work in left_out else [one for one in arms if one not in left_out])
        assert f"{work}, time, of taskset's" in done.stdout or work in left_out
    assert left_out <= {"openmpi", "torchrun", "server", *(() if may_compile() else ("regions",))}
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_work_that_cannot_be_done_is_left_out():
    done = run(
        "effect.py", "--rounds", "1", "--work", "matmul,regions", "--python", "/bin/false", PATH="/bin/none"
    )
    assert "matmul: left out, /bin/false has no torch; --python PATH names another" in done.stdout
    assert "regions: left out, there is no C compiler" in done.stdout
    assert "taskset: left out, no taskset on the PATH" in done.stdout
    assert done.returncode == 0


RANK = """
import os, socket, sys, time
with socket.socket(socket.AF_UNIX) as meeting:
    meeting.connect(os.environ["EFFECT_MEETING"])
    for line in meeting.makefile():
        %s
"""
"""A rank, but for its work."""


def meet(where, tmp_path, work, samples=2):
    """Let two ranks work that a shell starts as "a" and "b"."""
    here = where.replace(
        env={**where.env, VARIABLE: str(tmp_path / "meeting"), "CODE": RANK % work}, timeout_s=5.0
    )
    shell = (
        'for one in a b; do "$0" -c "$CODE" $one & p="$p $!"; done; for one in $p; do wait $one || exit; done'
    )
    return time_ranks(["/bin/sh", "-c", shell, sys.executable], here, Task(times=7, samples=samples))


def test_the_slower_rank_counts_and_gets_the_number(where, tmp_path):
    answer = "time.sleep(0.1); meeting.sendall(f'{int(line) + (sys.argv[1] == \"b\")}\\n'.encode())"
    found = meet(where, tmp_path, answer)
    assert {one.seconds for one in found} == {8.0}
    assert 2 <= len(found) <= 4


def test_a_rank_that_ends_is_told(where, tmp_path):
    end = "print('no luck', file=sys.stderr); sys.exit(3)"
    with pytest.raises(Failed, match="status 3 no luck"):
        meet(where, tmp_path, f"if sys.argv[1] == 'b': {end}\n        meeting.sendall(b'1')")
    with pytest.raises(Failed, match="status 0, and a rank that ended before its work"):
        meet(where, tmp_path, "sys.exit(0)")


def test_ranks_that_do_not_answer_are_killed(where, tmp_path):
    with pytest.raises(Hung):
        meet(where, tmp_path, "time.sleep(60)")
    with pytest.raises(Hung):
        time_ranks(
            ["/bin/sleep", "60"], where.replace(env={VARIABLE: str(tmp_path / "m")}), Task(times=1, samples=1)
        )


def test_what_others_do_meanwhile_is_seen(where, tmp_path):
    answer = "time.sleep(0.3); meeting.sendall(b'0.3\\n')"
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
            try:
                found = meet(where, tmp_path, answer)
            finally:
                busy.kill()
    finally:
        os.sched_setaffinity(0, allowed)
    assert len(found) == 4  # each was tried again
    assert all(one.others > 0.5 for one in found)


def test_what_ranks_do_themselves_is_not_of_others():
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); time.sleep(60)"
    shell = ["/bin/sh", "-c", '"$0" -c "$1" & echo $!; wait', sys.executable, burn]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        try:
            process.stdout.readline()
            assert sum_ticks(process.pid) >= 0.25 * os.sysconf("SC_CLK_TCK")
        finally:
            os.kill(child, 15)
