"""Runs of candidates: started by the supervisor of `ompbind run`, measured, and stopped with bench."""

import os
import tempfile
import time
from resource import RUSAGE_SELF, getrusage

import pytest

from ompbind.bench.plan_candidates import make_starts
from ompbind.bench.records import Metric, Status, Verification
from ompbind.bench.run_candidate import run_candidate
from ompbind.bench.verb import make_bench_settings
from ompbind.cli.main import load_verb
from ompbind.execution.run_options import RunOptions
from ompbind.machine.read import read_machine
from ompbind.planning.planner import make_plan
from ompbind.registry.registry import read_live_runs
from tests.live.conftest import RUNTIME_DIR, find_processes, two_cpus, wait_until
from tests.live.scenes import PYTHON


def make_options(**changes):
    """Options of runs of the session with this process's pid in its name."""
    return RunOptions(run_id=f"bench-{os.getpid()}", stdin_first=False, **changes)


def make_start(*argv, ranks=1, bound=True):
    """A candidate that runs a command: ompbind's default plan, or without ompbind."""
    words = ["-n", str(ranks), "--run-id", make_options().run_id, "--", *argv]
    settings = make_bench_settings(load_verb("bench").make_context("bench", words))
    starts, _ = make_starts(settings, read_machine(), make_plan)
    return starts[bound]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a candidate, and checks that the run leaves no file and no descriptor."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def measure(start, round_number=1, **options):
        before = len(os.listdir("/proc/self/fd"))
        found = run_candidate(make_options(**options), [Metric()], start, 0, round_number)
        assert (os.listdir(tmp_path), len(os.listdir("/proc/self/fd"))) == ([], before)
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


def test_a_run_that_fails_says_why_and_leaves_no_rank(run):
    for script, reason in (
        ("echo a >&2; exit 3", "code 3; last lines: a"), ("exec sleep 301.5", "timeout after 1 s"),
        ("kill -KILL $PPID; exec sleep 301.5", "the supervisor was killed"),
    ):  # fmt: skip
        found = run(make_start("sh", "-c", script), timeout=1)
        assert (found.status, found.values, reason in found.reason) == (Status.FAILED, (), True), found
        assert not find_processes("301.5")


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
    found = run_candidate(make_options(), [Metric()], make_start("true"), 0, 1)
    assert found.conditions.other_runs == 1
    assert found.max_rss_bytes is None, "it is not above that of the process that started the rank"
