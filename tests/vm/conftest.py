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

ROOT = Path(__file__).parent.parent.parent
TOOL = Path(os.environ.get("OMPTEST_VM") or ROOT / "../shared/vm/ompbind-vm")
BOOT_S = 240
MACHINE_FAILED = (124, 125)
"""Exit codes of the tool if the machine fails; programs inside have their own time limit and codes."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Run all tests of a machine in the same worker, which boots it once."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            one_boot_each = item.path.name == "test_vm.py"
            machine = item.callspec.params["name"] if one_boot_each else "runtimes"
            item.add_marker(pytest.mark.xdist_group(machine))


@pytest.fixture
def observed(name):
    """What `inside.py` printed in the machine `name`; skips with a reason if no machine can be booted."""
    missing = what_is_missing()
    if missing:
        pytest.skip(f"NOTE: no virtual machines: {missing}")
    done = boot(name)
    if done.returncode in MACHINE_FAILED and not os.environ.get("OMPTEST_ALL"):
        pytest.skip(f"NOTE: no virtual machine {name}: {last_line(done.stderr)}")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@functools.cache
def what_is_missing():
    """Return why no machine can be booted, or None."""
    if os.uname().machine != "x86_64":
        return "their topologies need x86_64"
    if not os.access(TOOL, os.X_OK):
        return f"there is no {os.path.normpath(TOOL)} (OMPTEST_VM names another tool)"
    with open(__file__, encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # it unpacks a system, and several workers may call it
        done = subprocess.run([TOOL, "--setup"], capture_output=True, text=True, timeout=600)
    return f"{TOOL.name} --setup: {last_line(done.stderr)}" if done.returncode else None


@functools.cache
def boot(name):
    """Boot a machine, and run all runs of its table in it."""
    command = [TOOL, "--timeout", str(BOOT_S), *MACHINES[name].options, "--"]
    inside = [sys.executable, str(Path(__file__).with_name("inside.py")), json.dumps(make_task(name))]
    return subprocess.run(
        [*command, *inside], capture_output=True, text=True, timeout=BOOT_S + 60, stdin=subprocess.DEVNULL
    )


def last_line(text):
    return (text.strip().splitlines() or ["no output"])[-1]
