"""Settings of the test suite: tests in parallel, tests that run alone, tests only for long runs."""

import fcntl
import os
import shutil
import signal
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from ompbind.machine.read.linux_cgroup import read_limits
from ompbind.machine.read.root import DirectoryRoot
from tests.live.other_user import unavailable
from tests.long import EXAMPLES, IS_RANDOM, LONG

# No deadline for an example: a slow machine must not fail a test.
settings.register_profile("untimed", deadline=None, max_examples=EXAMPLES, derandomize=not IS_RANDOM)
settings.load_profile("untimed")

# What the caller has set for other programs must not change what ompbind does in a test.
OF_OTHERS = ("OMP_", "OMPBIND_", "KMP_", "GOMP_", "SLURM_", "PMI_", "FLUX_", "MAKE", "MFLAGS")
for variable in [name for name in os.environ if name.startswith(OF_OTHERS)]:
    del os.environ[variable]

# Programs started in the background or by nohup ignore these signals, and so would all programs of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# With a private umask, other users could not read what tests write for them.
os.umask(0o022)

# A CPU quota below the number of CPUs is a warning of each run, and leaves ranks few threads.
if QUOTA := read_limits(DirectoryRoot("/")).quota:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: max(1, int(QUOTA))])

LOCKS = "PYTEST_LOCKS"
"""The variable with the directory of the lock files of this run."""


def pytest_configure(config):
    if LOCKS not in os.environ:
        directory = os.environ[LOCKS] = tempfile.mkdtemp()
        config.add_cleanup(lambda: shutil.rmtree(directory))
        for name in ("turn", "running"):
            Path(directory, name).touch()


def pytest_xdist_auto_num_workers(config):
    """Return a worker for each CPU and one more, because many tests mostly wait, and at most 8."""
    return min(8, len(os.sched_getaffinity(0)) + 1)


def pytest_addoption(parser):
    parser.addoption("--part", help="run the tests of this part of `make test-all`, and no others")


def pytest_collection_modifyitems(config, items):
    """Deselect tests of other parts of `make test-all`, and repetitions that only its part `long` runs."""

    def is_wanted(item):
        parts = {mark.args[0] for mark in item.iter_markers("part")}
        if config.option.part:
            return config.option.part in parts
        return not parts and (LONG or not item.get_closest_marker("long"))

    if deselected := [item for item in items if not is_wanted(item)]:
        config.hook.pytest_deselected(items=deselected)
        items[:] = filter(is_wanted, items)


def pytest_runtest_setup(item):
    if item.get_closest_marker("two_cpus") and len(os.sched_getaffinity(0)) < 2:
        unavailable("needs two allowed CPUs")
    if item.get_closest_marker("no_quota") and QUOTA:
        unavailable(f"needs a cgroup without a CPU quota, here {QUOTA:g} CPUs")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Run a test marked `alone` while no other worker runs a test.

    Every test holds a shared lock on `running`, a test marked `alone` an exclusive lock. A worker keeps
    `turn` locked while it waits for `running`, so that other workers cannot start new tests before it.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    directory = Path(os.environ[LOCKS])
    with (directory / "turn").open() as turn, (directory / "running").open() as running:
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(running, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        try:
            return (yield)
        finally:
            fcntl.flock(running, fcntl.LOCK_UN)


def pytest_terminal_summary(terminalreporter):
    if not LONG and not terminalreporter.config.option.part:
        terminalreporter.write_line(
            "samples only: `make test-all` runs all cases, and what needs Slurm, virtual machines and more"
        )


@pytest.fixture(scope="session")
def yaml():
    """The package yaml, which only the gate installs: few tests need it."""
    if not find_spec("yaml"):
        unavailable("yaml is not installed: pip install pyyaml")
    return import_module("yaml")


@pytest.fixture(scope="session", autouse=True)
def _own_runtime_directory(tmp_path_factory):
    """Use a run registry of this test session's own, separate from live runs on the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMPBIND_RUNTIME_DIR", os.fspath(tmp_path_factory.mktemp("claims")))
        yield
