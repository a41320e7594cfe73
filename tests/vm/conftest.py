"""Virtual machines for tests: each machine is booted once, and everything runs in this boot."""

import fcntl
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vm.machines import MACHINES, make_task

HERE = Path(__file__).parent
TOOL = Path(os.environ.get("OMPTEST_VM") or HERE / "../../../shared/vm/ompbind-vm")
BOOT_S = 240
MACHINE_FAILED = (124, 125)
"""Exit codes of the tool if the machine fails; programs inside have their own time limit and codes."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Run all tests of a machine in the same worker, which boots it once."""
    for item in items:
        if item.path.parent == HERE and hasattr(item, "callspec") and "name" in item.callspec.params:
            item.add_marker(pytest.mark.xdist_group(item.callspec.params["name"]))


@pytest.fixture
def observed(name):
    return boot(name)


@functools.cache
def what_is_missing():
    if os.uname().machine != "x86_64":
        return "their topologies need x86_64"
    if not os.access(TOOL, os.X_OK):
        return f"there is no {os.path.normpath(TOOL)} (OMPTEST_VM names another tool)"
    with open(__file__, encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # it unpacks a system, and several workers may call it
        done = subprocess.run([TOOL, "--setup"], capture_output=True, text=True, timeout=600)
    return f"{TOOL.name} --setup: {done.stderr.strip()[-300:]}" if done.returncode else None


def run_in_machine(options, *command, limit_s=BOOT_S):
    if missing := what_is_missing():
        pytest.skip(f"NOTE: no virtual machines: {missing}")
    words = [TOOL, "--timeout", str(limit_s), *options, "--", *command]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = subprocess.run(words, text=True, timeout=limit_s + 60, **pipes)
    if done.returncode in MACHINE_FAILED and not os.environ.get("OMPTEST_ALL"):
        pytest.skip(f"NOTE: no virtual machine: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@functools.cache
def boot(name):
    task = (sys.executable, str(HERE / "inside.py"), json.dumps(make_task(name)))
    return json.loads(run_in_machine(MACHINES[name].options, *task))
