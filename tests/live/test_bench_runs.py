"""Runs of candidates: started by the supervisor of `ompbind run`, measured, and stopped with bench."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ompbind.bench.start_ranks import start_ranks
from ompbind.registry.claims import read_live_runs
from tests.live.candidates import make_settings, make_start
from tests.live.conftest import RUNTIME_DIR, allowed_list, wait_until


def started(start, directory, **settings):
    return start_ranks(start, make_settings(**settings), str(directory))


def first_line(directory):
    """Wait until rank 0 has written a line, and return it."""
    path = directory / "0.out"
    return wait_until(lambda: path.exists() and path.read_text(), "rank 0 writes a line")


def live_runs():
    return read_live_runs(os.environ[RUNTIME_DIR])


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "unbound"])
def test_the_output_of_ranks_goes_to_files_and_their_input_is_empty(bound, tmp_path):
    script = "cat; echo out; echo err >&2; grep Cpus_allowed_list /proc/self/status"
    start = make_start("sh", "-c", script, ranks=2, bound=bound)
    with started(start, tmp_path) as run:
        outcome = run.wait()
    assert [rank_exit.code for rank_exit in outcome.exits] == [0, 0]
    for rank in (0, 1):
        out, _, status = (tmp_path / f"{rank}.out").read_text().partition("\n")
        cpus = str(start.plan.placements[rank].cpuset) if bound else allowed_list(os.getpid())
        assert (out, status.split()[-1]) == ("out", cpus)
        assert (tmp_path / f"{rank}.err").read_text() == "err\n"


@pytest.mark.parametrize(("bound", "claims"), [(True, 1), (False, 0)])
def test_a_bound_run_is_a_live_run_until_its_ranks_have_exited(bound, claims, tmp_path):
    start = make_start("sh", "-c", "echo up; exec sleep 300", bound=bound)
    with started(start, tmp_path) as run:
        first_line(tmp_path)
        found = [(live.run_id, live.pid) for live in live_runs()]
        assert found == [(make_settings().run_id, os.getpid())] * claims
        assert not run.has_exited()
        run.stop()
        assert run.has_exited(20)
        (rank_exit,) = run.wait().exits
    assert rank_exit.signal == signal.SIGTERM
    assert not rank_exit.failed
    assert not live_runs()


def test_ranks_are_stopped_when_the_block_is_left(tmp_path):
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    with started(make_start("sh", "-c", script), tmp_path) as run:
        first_line(tmp_path)
    (rank_exit,) = run.wait().exits
    assert rank_exit.signal == signal.SIGKILL


def test_a_command_that_is_missing_is_an_error(tmp_path):
    with started(make_start("no-such-command"), tmp_path) as run:
        outcome = run.wait()
    assert "no-such-command" in outcome.error.message
    assert not outcome.exits


def test_a_time_limit_stops_the_ranks(tmp_path):
    with started(make_start("sleep", "300"), tmp_path, timeout_s=0.1) as run:
        assert run.wait().timed_out


def test_a_supervisor_that_is_killed_leaves_no_rank(tmp_path, capfd):
    with started(make_start("sh", "-c", "echo $PPID $$; exec sleep 300"), tmp_path) as run:
        supervisor, rank = map(int, first_line(tmp_path).split())
        os.kill(supervisor, signal.SIGKILL)
        assert "supervisor was killed" in run.wait().error.message
    assert not Path(f"/proc/{rank}").exists()
    assert not live_runs()
    assert "was killed by SIGKILL" in capfd.readouterr().err


BENCH = """
import os, sys
from tests.live.candidates import make_settings, make_start
from ompbind.bench.start_ranks import start_ranks
script = "echo $$ >>" + sys.argv[2] + "; exec sleep 300"
while True:
    directory = sys.argv[1] + "/run"
    os.mkdir(directory)
    with start_ranks(make_start("sh", "-c", script, ranks=2), make_settings(), directory) as run:
        run.wait()
"""


@pytest.fixture
def bench(tmp_path, scene):
    """A process that runs a candidate, and can be killed; and a file with the PIDs of its ranks."""
    command = [sys.executable, "-c", BENCH, str(tmp_path), str(tmp_path / "pids")]
    env = scene.environment(PYTHONPATH=str(Path(__file__).parents[2]))
    process = subprocess.Popen(command, env=env)
    yield process, tmp_path / "pids"
    process.kill()
    process.wait()


def test_a_bench_that_is_killed_while_ranks_run_leaves_nothing(bench, scene, tmp_path):
    process, pids = bench
    wait_until(lambda: pids.exists() and pids.read_text().count("\n") == 2, "both ranks run")
    process.kill()
    scene.check_nothing_left("the end of bench")
    wait_until(lambda: not (tmp_path / "run").exists(), "the files of the run are removed")
    assert not list(Path(os.environ[RUNTIME_DIR]).iterdir())


@pytest.mark.parametrize("delay_s", [0, 0.001, 0.002, 0.004, 0.008])
def test_a_bench_that_is_killed_while_ranks_start_leaves_no_process(delay_s, bench, scene):
    process, _ = bench
    wait_until(live_runs, "the run is registered")
    time.sleep(delay_s)
    process.kill()
    scene.check_nothing_left("the end of bench")
