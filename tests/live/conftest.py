"""Fixtures of the tests that start real processes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUNTIME_DIR = "OMPBIND_RUNTIME_DIR"
OMPBIND = str(Path(sys.executable).with_name("ompbind"))


def pytest_collection_modifyitems(items):
    for item in items:
        if "/live/" in str(item.path):
            item.add_marker(pytest.mark.live)


@pytest.fixture(autouse=True)
def claims(tmp_path_factory, monkeypatch):
    """A folder of claims for each test: what an earlier one left running is none of its business."""
    folder = tmp_path_factory.mktemp("claims")
    monkeypatch.setenv(RUNTIME_DIR, str(folder))
    return folder


def clean_environment(**extra):
    """The environment without anything that this test run, or a run around it, decided."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OMP", "KMP", "GOMP", "SLURM", "PMI", "FLUX", "COVERAGE_PROCESS"))
        and not name.endswith("_NUM_THREADS")
    }
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "COLUMNS", "PS1"):
        kept.pop(name, None)
    path = f"{Path(OMPBIND).parent}:{kept['PATH']}"
    return {**kept, RUNTIME_DIR: os.environ[RUNTIME_DIR], "PATH": path, **extra}


@pytest.fixture
def ompbind():
    """Run ompbind to its end."""

    def run(*args, env=None, before=(), **options):
        settings = {
            "capture_output": True,
            "text": True,
            "timeout": 60,
            "stdin": subprocess.DEVNULL,
            **options,
        }
        return subprocess.run([*before, OMPBIND, *args], env=clean_environment(**(env or {})), **settings)

    return run


@pytest.fixture
def start():
    """Start ompbind and leave it running; what is left of it is killed after the test."""
    started = []

    def begin(*args, env=None, **options):
        settings = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "stdin": subprocess.DEVNULL,
        }
        process = subprocess.Popen(
            [OMPBIND, *args], env=clean_environment(**(env or {})), **{**settings, **options}
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()


def wait_until(holds, what, timeout_s=20.0):
    """Wait until a condition holds; fail with `what` when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        result = holds()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"not in {timeout_s} s: {what}")


def state_of(pid):
    """The state of a process as the kernel writes it, "T" for one that is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_alive(pid):
    """Tell whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children_of(pid):
    """The children of a process with one thread."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def keeper_of(process):
    """The process that is the parent of all ranks of a run, once there is one."""
    return wait_until(lambda: children_of(process.pid), "the keeper")[0]


def ranks_of(process):
    """The processes of the ranks of a run, as far as they have been started."""
    return [pid for pid in children_of(keeper_of(process)) if is_alive(pid)]


def allowed_list(pid, task=None):
    """The CPUs that a process, or one of its threads, may run on, as the kernel tells."""
    status = Path(f"/proc/{pid}/task/{task or pid}/status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list"))


def two_cpus():
    """The first two CPUs of this process, for tests that need two."""
    cpus = sorted(os.sched_getaffinity(0))
    assert len(cpus) >= 2, "these tests need two CPUs"
    return cpus[:2]


def required(*names):
    """The first of some programs; without any the test is skipped, or fails where CI promises them."""
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None and os.environ.get("OMPBIND_TEST_ALL"):
        raise AssertionError(f"CI must install {names[0]}")
    if found is None:
        pytest.skip(f"{names[0]} is not installed")
    return found


def python_with_torch():
    """A Python that has torch, this one or the system's; without any the test is skipped, or fails in CI."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    for path in (sys.executable, "/usr/bin/python3"):
        if Path(path).exists() and subprocess.run([path, "-c", look], timeout=60).returncode == 0:
            return path
    assert not os.environ.get("OMPBIND_TEST_ALL"), "CI must install torch"
    return pytest.skip("no Python here has torch")


__all__ = [
    "OMPBIND",
    "allowed_list",
    "children_of",
    "clean_environment",
    "is_alive",
    "keeper_of",
    "python_with_torch",
    "ranks_of",
    "required",
    "signal",
    "state_of",
    "two_cpus",
    "wait_until",
]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A shared library that can be preloaded."""
    required("gcc")
    path = tmp_path_factory.mktemp("lib") / "libtcmalloc.so.4"
    command = ["gcc", "-shared", "-o", str(path), "-x", "c", "-"]
    subprocess.run(command, input="int ompbind_was_here;", text=True, check=True, timeout=60)
    return str(path)
