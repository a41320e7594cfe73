"""The benchmarks run, and measure what they describe."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.barrier import SOCKET_VARIABLE, Task, sum_ticks, time_ranks
from benchmarks.comparison import compile_openmp
from benchmarks.quiet import read_activity, read_descendants
from benchmarks.timing import Failed, RunSettings, TimedOut, time_once
from benchmarks.variants import MAKERS
from docs.record_scaling import BLOCK, PAGE, fill_page, find_sentences
from tests.live.conftest import is_alive, wait_until

pytestmark = pytest.mark.alone
DIRECTORY = Path(__file__).parents[2] / "benchmarks"


def run(script, *args, **env):
    return subprocess.run(
        [sys.executable, str(DIRECTORY / script), *args],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def has_compiler():
    """Return whether a compiler is installed; CI must have a compiler."""
    return bool(os.environ.get("OMPTEST_ALL") or shutil.which("cc"))


def test_launches_are_measured():
    done = run("launch.py", "--rounds", "1", "--ranks", "1,2", "--only", "floor,ompbind")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("floor ", "ompbind "))]
    assert [row[0] for row in rows] == (["floor", "ompbind"] if has_compiler() else ["ompbind"]) * 2
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "not measured" in done.stdout


def test_without_a_compiler_the_rest_is_measured(tmp_path):
    options = ("--rounds", "1", "--ranks", "1", "--only", "floor,hydra,ompbind")
    done = run("launch.py", *options, PATH=str(tmp_path))
    assert "floor: left out, no C compiler found" in done.stdout
    assert "hydra: left out, no mpiexec.hydra on the PATH" in done.stdout
    assert "\nompbind " in done.stdout
    assert done.returncode == 0


def test_an_unknown_launcher_is_refused_with_the_known_names():
    done = run("launch.py", "--only", "flor")
    assert done.returncode == 2
    assert "unknown launcher flor; known are floor, taskset" in done.stderr


def test_live_views_are_measured():
    done = run("watch.py", "--seconds", "0.1", "--sizes", "1x3")
    assert done.stderr == ""
    [row] = [line.split() for line in done.stdout.splitlines() if line.split()[:2] == ["1", "3"]]
    assert float(row[2]) >= 2.0, "the default interval"
    assert 0 < float(row[3]) < 20, "a busy machine takes longer, but no whole CPU"
    assert "1 rank of 3 threads, watched" in done.stdout


@pytest.mark.long
def test_quiet_runs_are_measured():
    done = run("quiet.py", "--seconds", "0.3", "--ranks", "1,2")
    rows = [line.split() for line in done.stdout.splitlines() if line[:5].strip().isdigit()]
    assert [row[0] for row in rows] == ["1", "2"], done.stdout + done.stderr
    assert all(int(row[1]) >= 1 and float(row[2]) > 1 for row in rows)
    assert done.returncode == ("MISSED" in done.stdout)


def test_runs_of_bench_are_measured():
    done = run("bench_overhead.py", "--rounds", "2", "--runs", "10")
    rows = [line.split("  ")[0] for line in done.stdout.splitlines() if "minimum" in line]
    assert rows == ["posix_spawn", "supervisor", "ompbind run", "bench", "bench unbound"], done.stderr
    assert "descriptors, children, files left               0" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.returncode == ("MISSED" in done.stdout)  # the memory of few runs is not exact


@pytest.fixture
def settings(tmp_path):
    return RunSettings(env=dict(os.environ), stderr_path=str(tmp_path / "said"), timeout_s=0.5)


def test_a_hanging_launcher_is_killed_with_all_its_processes(settings, tmp_path):
    """Processes with their own process group are killed too, such as ranks of Open MPI."""
    pids = tmp_path / "pids"
    code = f"set -m; sleep 60 & echo $! >{pids}; echo $$ >>{pids}; wait"
    with pytest.raises(TimedOut):
        time_once(["/bin/bash", "-c", code], settings)
    started = [int(word) for word in pids.read_text().split()]
    assert len(started) == 2
    wait_until(lambda: not any(map(is_alive, started)), "all are killed")


def test_the_error_of_a_failing_launcher_has_its_last_line(settings):
    with pytest.raises(Failed, match="^status 3 no cores$"):
        time_once(["/bin/sh", "-c", "echo no cores >&2; echo ---- >&2; exit 3"], settings)


def test_a_launcher_that_exits_is_timed(settings):
    sample = time_once(["/bin/sh", "-c", "sleep 0.2"], settings)
    assert 0.2 <= sample.wall_s < 0.5
    assert 0 < sample.cpu_s < 0.1
    busy = time_once(["/bin/sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done"], settings)
    assert busy.cpu_s > 3 * sample.cpu_s


def test_wake_ups_and_children_are_counted():
    code = "import time\nwhile True: time.sleep(0.01)"
    with subprocess.Popen(["/bin/sh", "-c", '"$0" -c "$1" & wait', sys.executable, code]) as process:
        try:
            below = wait_until(lambda: len(found := read_descendants(process.pid)) == 2 and found, "a child")
            time.sleep(0.3)
            shell, child = (read_activity([pid]) for pid in below)
            time.sleep(0.3)
            assert read_activity(below[:1]) == shell
            assert read_activity(below[1:])[0] > child[0] + 5
        finally:
            os.kill(below[1], 15)


@pytest.mark.parametrize(
    "variants", [("ompbind", "taskset"), pytest.param(tuple(MAKERS), marks=pytest.mark.long)]
)
def test_the_effect_of_binding_is_measured_for_every_variant(variants):
    options = ("--rounds", "1", "--seconds", "0.02", "--work", "regions,server", "--only", ",".join(variants))
    done = run("effect.py", *options)
    if "only one core" in done.stdout:
        pytest.skip("one core is too few for two ranks")
    assert (done.returncode, done.stderr) == (0, "")
    left_out = {line.partition(":")[0] for line in done.stdout.splitlines() if ": left out, " in line}
    for work in ("regions", "server"):
        table = done.stdout.partition(f"\n{work}, ")[2].partition("\n\n")[0].splitlines()[2:]
        rows = [line.split()[0] for line in table if line.split()[0] in MAKERS and line.split()[1] != "is"]
        assert rows == ([] if work in left_out else [name for name in variants if name not in left_out])
        assert f"{work}, time, of taskset's" in done.stdout or work in left_out
    assert left_out <= {"openmpi", "torchrun", "server", *(() if has_compiler() else ("regions",))}
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_unavailable_work_is_left_out():
    done = run(
        "effect.py", "--rounds", "1", "--work", "matmul,regions", "--python", "/bin/false", PATH="/bin/none"
    )
    assert "matmul: left out, /bin/false has no torch; give another with --python PATH" in done.stdout
    assert "regions: left out, no C compiler found" in done.stdout
    assert "taskset: left out, no taskset on the PATH" in done.stdout
    assert done.returncode == 0


@pytest.mark.long
def test_work_beside_a_busy_scheduler_is_measured_in_every_layout():
    done = run("scheduler.py", "--rounds", "1", "--seconds", "0.05")
    if not has_compiler() or "only one CPU" in done.stdout:
        pytest.skip("no compiler, or one CPU only")
    assert (done.returncode, done.stderr) == (0, "")
    layouts = ["vllm-gomp", "vllm-omp", "ompbind", "shared"]
    rows = [line.split()[0] for line in done.stdout.splitlines() if line.startswith(tuple(layouts))]
    assert rows == layouts
    assert "time, of vllm-gomp's" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_busy_scheduler_exits_with_the_code_of_its_command(tmp_path):
    if not has_compiler():
        pytest.skip("no compiler")
    scheduler = compile_openmp("scheduler.c", tmp_path)
    codes = {"exit 0": 0, "exit 3": 3, "kill -9 $$": 1}
    for script, code in codes.items():
        assert subprocess.run([scheduler, "/bin/sh", "-c", script]).returncode == code


RANK = """
import os, socket, sys, time
with socket.socket(socket.AF_UNIX) as barrier:
    barrier.connect(os.environ["EFFECT_SOCKET"])
    for line in barrier.makefile():
        %s
"""
"""A rank without its work."""


def meet(settings, tmp_path, work, samples=2):
    """Measure two ranks that a shell starts as "a" and "b"."""
    rank_settings = settings.replace(
        env={**settings.env, SOCKET_VARIABLE: str(tmp_path / "socket"), "CODE": RANK % work}, timeout_s=5.0
    )
    shell = (
        'for rank in a b; do "$0" -c "$CODE" $rank & p="$p $!"; done; '
        "for pid in $p; do wait $pid || exit; done"
    )
    return time_ranks(["/bin/sh", "-c", shell, sys.executable], rank_settings, Task(times=7, samples=samples))


def test_the_slower_rank_counts_and_gets_the_number(settings, tmp_path):
    answer = "time.sleep(0.1); barrier.sendall(f'{int(line) + (sys.argv[1] == \"b\")}\\n'.encode())"
    found = meet(settings, tmp_path, answer)
    assert {timing.seconds for timing in found} == {8.0}
    assert 2 <= len(found) <= 4


def test_a_rank_that_exits_early_is_reported(settings, tmp_path):
    end = "print('no luck', file=sys.stderr); sys.exit(3)"
    with pytest.raises(Failed, match="status 3 no luck"):
        meet(settings, tmp_path, f"if sys.argv[1] == 'b': {end}\n        barrier.sendall(b'1')")
    with pytest.raises(Failed, match="status 0, and a rank exited before its work"):
        meet(settings, tmp_path, "sys.exit(0)")


def test_ranks_that_do_not_answer_are_killed(settings, tmp_path):
    with pytest.raises(TimedOut):
        meet(settings, tmp_path, "time.sleep(60)")
    with pytest.raises(TimedOut):
        time_ranks(
            ["/bin/sleep", "60"],
            settings.replace(env={SOCKET_VARIABLE: str(tmp_path / "m")}),
            Task(times=1, samples=1),
        )


def test_cpu_time_of_other_processes_is_measured(settings, tmp_path):
    answer = "time.sleep(0.3); barrier.sendall(b'0.3\\n')"
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
            try:
                found = meet(settings, tmp_path, answer)
            finally:
                busy.kill()
    finally:
        os.sched_setaffinity(0, allowed)
    assert len(found) == 4  # each measurement was repeated
    assert all(timing.foreign_share > 0.5 for timing in found)


def test_cpu_time_of_ranks_is_not_foreign():
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); time.sleep(60)"
    shell = ["/bin/sh", "-c", '"$0" -c "$1" & echo $!; wait', sys.executable, burn]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        try:
            process.stdout.readline()
            assert sum_ticks(process.pid) >= 0.25 * os.sysconf("SC_CLK_TCK")
        finally:
            os.kill(child, 15)


def test_decisions_are_measured():
    done = run("decision.py", "--sessions", "1")
    assert done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 80
    cases = ("1 of", "2 of", "2 equal", "6 equal", "noisy")
    assert sum(line.startswith(cases) for line in done.stdout.splitlines()) == 14
    assert "1 of 2 faster, 40 rounds: not right" in done.stdout


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("strace") and not os.environ.get("OMPTEST_ALL"), reason="no strace")
def test_scaling_is_measured():
    done = run("scaling.py", "--rounds", "1", "--ranks", "1,3")
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[3:5]] == ["1", "3"]
    of_one_rank = rows[: next(at for at, row in enumerate(rows) if row[:1] == ["10,000"])]
    opens = {(row[0], row[1]): int(row[2]) for row in of_one_rank if len(row) == 7 and row[2].isdigit()}
    assert opens["venv", "ompbind"] > 50
    assert opens["zipapp", "ompbind"] > opens["venv", "ompbind"]  # Python opens the file for each module
    assert opens["venv", "kernel"] > 20
    assert opens["python", "python"] < opens["venv", "ompbind"]
    page = PAGE.read_text()
    filled = fill_page(page, done.stdout)
    assert BLOCK.sub("", filled) == BLOCK.sub("", page)
    assert [table.split()[0] for table in BLOCK.findall(filled)] == ["ranks", "one", "10,000"]
    assert done.stdout.splitlines()[3] in filled
    assert any(re.search(r"some \d+ ms of CPU time", line) for line in find_sentences(filled))
