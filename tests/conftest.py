"""Settings of the whole test suite: how many tests run at once, which run alone, which run only at length."""

import fcntl
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from tests.long import EXAMPLES, LONG

# Examples are counted, not timed: a slow machine is no fault of what is tested.
settings.register_profile("untimed", deadline=None, max_examples=EXAMPLES)
settings.load_profile("untimed")

# What a script starts in the background, or under nohup, ignores them, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

LOCKS = "PYTEST_LOCKS"
"""Names the folder with the files that the workers of this run lock."""


def pytest_configure(config):
    """Make the files that workers lock."""
    if LOCKS not in os.environ:
        folder = os.environ[LOCKS] = tempfile.mkdtemp()
        config.add_cleanup(lambda: shutil.rmtree(folder))
        for name in ("turn", "running"):
            Path(folder, name).touch()


def pytest_xdist_auto_num_workers(config):
    """Start a worker for each CPU, at least two: many tests wait most of their time. At most eight."""
    return min(8, max(2, len(os.sched_getaffinity(0))))


def pytest_collection_modifyitems(config, items):
    """Leave out what only `make test-long` does."""
    left_out = [item for item in items if item.get_closest_marker("long") and not LONG]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Let a test that is marked as alone run while no other worker runs one.

    Who waits keeps the turn, so that the others, who begin a test as soon as one ends, wait for it too.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    folder = Path(os.environ[LOCKS])
    with (folder / "turn").open() as turn, (folder / "running").open() as running:
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(running, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        try:
            return (yield)
        finally:
            fcntl.flock(running, fcntl.LOCK_UN)


def pytest_terminal_summary(terminalreporter):
    """Say what a short run has left out."""
    if not LONG:
        terminalreporter.write_line("corners and samples only: `make test-long` tries everything")


@pytest.fixture(scope="session", autouse=True)
def _claims_of_its_own(tmp_path_factory):
    """Keep live runs of this session and of the rest of the machine out of each other's sight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMPBIND_RUNTIME_DIR", os.fspath(tmp_path_factory.mktemp("claims")))
        yield
