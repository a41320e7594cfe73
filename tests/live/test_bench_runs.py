"""Runs of candidates: started by the supervisor of `ompbind run`, measured, and stopped with bench."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import pytest

from ompbind.bench.records import Status, Verification
from ompbind.bench.run_candidate import run_candidate, start_ranks
from ompbind.registry.registry import read_live_runs
from tests.live.conftest import RUNTIME_DIR, two_cpus, wait_until
from tests.live.interrupt_runs import make_settings, make_start
from tests.live.scenes import PYTHON
from tests.long import rounds

ROOT = str(Path(__file__).parents[2])


def test_a_supervisor_that_is_killed_leaves_no_rank(tmp_path, capfd):
    start, output = make_start("sh", "-c", "echo $PPID $$; exec sleep 300"), tmp_path / "0.out"
    with start_ranks(start, make_settings(), str(tmp_path)) as run:
        written = wait_until(lambda: output.exists() and output.read_text(), "rank 0 writes a line")
        supervisor, rank = map(int, written.split())
        os.kill(supervisor, signal.SIGKILL)
        assert "supervisor was killed" in run.wait().error.message
    assert not Path(f"/proc/{rank}").exists()
    assert "was killed by SIGKILL" in capfd.readouterr().err


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a candidate, and checks that the run leaves no file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def measure(start, round_number=1, **settings):
        found = run_candidate(start, make_settings(**settings), 0, round_number)
        assert not list(tmp_path.glob("ompbind-bench-*"))
        return found

    return measure


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "unbound"])
def test_a_run_is_measured_and_its_ranks_have_their_cpus(bound, run):
    peak = getrusage(RUSAGE_SELF).ru_maxrss * 1024  # a rank with less memory has no peak of its own
    size = peak + 100_000_000
    script = f"import os, sys, time; x = b'x' * {size}; time.sleep(0.1); y = sum(range(2_000_000))"
    plan = make_start("true", ranks=2, bound=bound).plan
    cpus = [set(each.cpuset) for each in plan.placements] if plan else [os.sched_getaffinity(0)]
    script += f"; sys.exit(os.sched_getaffinity(0) not in {cpus})"
    found = run(make_start(*PYTHON, script, ranks=2, bound=bound))
    assert (found.status, found.exit_codes, found.reason) == (Status.OK, (0, 0), "")
    assert found.candidate == ("default" if bound else "unbound")
    assert found.values == (max(found.wall_s),)
    assert 0.1 < min(found.wall_s) < 10
    assert 0.04 < found.user_s + found.system_s < sum(found.wall_s)
    assert 2 * size < found.max_rss_bytes < 2 * (size + 100_000_000)
    assert abs(found.started - time.time()) < 60


@pytest.mark.parametrize(("argv", "settings", "reason"), [
    (("sh", "-c", "echo a >&2; echo b >&2; exit 3"), {}, "rank 0 exited with code 3; last lines: a | b"),
    (("sleep", "300"), {"timeout_s": 0.1}, "timeout after 0.1 s"),
    (("no-such-command",), {}, "command not found: no-such-command"),
])  # fmt: skip
def test_a_run_that_fails_says_why(argv, settings, reason, run):
    found = run(make_start(*argv), **settings)
    assert (found.status, found.values) == (Status.FAILED, ())
    assert found.reason.startswith(reason)


WAIT = "import time; time.sleep(0.8)"
UNBIND = f"import os; os.sched_setaffinity(0, range(os.cpu_count())); {WAIT}"


@pytest.mark.parametrize(("script", "bound", "round_number", "expected"), [
    (WAIT, True, 0, Verification.VERIFIED), (UNBIND, True, 20, Verification.VIOLATED),
    (WAIT, True, 9, Verification.NOT_CHECKED), ("", False, 0, Verification.NOT_CHECKED),
], ids=["warm-up", "unbinds itself", "other round", "unbound"])  # fmt: skip
def test_the_warm_up_and_every_tenth_round_are_verified(script, bound, round_number, expected, run):
    two_cpus()
    found = run(make_start(*PYTHON, script, ranks=2, bound=bound), round_number)
    assert found.verification == expected
    assert found.status == (Status.INVALID if expected == Verification.VIOLATED else Status.OK)
    assert found.reason.startswith("rank 0: " if expected == Verification.VIOLATED else "")


def test_other_live_runs_are_counted(ompbind, start):
    start("run", "--share", "--", "sleep", "300")
    wait_until(lambda: read_live_runs(os.environ[RUNTIME_DIR]), "the other run is registered")
    found = run_candidate(make_start("true"), make_settings(), 0, 1)
    assert found.conditions.other_runs == 1
    assert found.max_rss_bytes is None, "it is not above that of the process that started the rank"


def test_an_interrupt_at_any_moment_leaves_nothing(tmp_path, scene):
    command = [sys.executable, "-m", "tests.live.interrupt_runs", str(tmp_path), str(rounds(100))]
    env = scene.environment(PYTHONPATH=ROOT)
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == ""
    scene.check_nothing_left("interrupted runs")
