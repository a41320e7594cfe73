"""Virtual machines for tests: each one is booted once, and everything asked of it is asked in that boot."""

import fcntl
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vm.machines import MACHINES, make_order

ROOT = Path(__file__).parent.parent.parent
TOOL = Path(os.environ.get("OMPBIND_VM") or ROOT / "../shared/vm/ompbind-vm")
BOOT_S = 240
MACHINE_FAILED = (124, 125)
"""How the tool ends when the machine fails; what runs inside has an end of its own, and others codes."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave all that is asked of a machine to the same worker, which boots it once."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            one_boot_each = item.path.name == "test_vm.py"
            machine = item.callspec.params["name"] if one_boot_each else "runtimes"
            item.add_marker(pytest.mark.xdist_group(machine))


@pytest.fixture
def seen(name):
    """What was seen inside the machine `name`; without virtual machines here the test is skipped, visibly."""
    missing = what_is_missing()
    if missing:
        pytest.skip(f"NOTE: no virtual machines here: {missing}")
    done = boot(name)
    if done.returncode in MACHINE_FAILED and not os.environ.get("OMPBIND_TEST_ALL"):
        pytest.skip(f"NOTE: no virtual machine {name} here: {last_line(done.stderr)}")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@functools.cache
def what_is_missing():
    """Tell why no machine can be booted at all, or return None."""
    if os.uname().machine != "x86_64":
        return "their topologies are those of x86_64"
    if not os.access(TOOL, os.X_OK):
        return f"there is no {os.path.normpath(TOOL)} (OMPBIND_VM names another tool)"
    with open(__file__, encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # it unpacks a system, and may be asked by several workers
        done = subprocess.run([TOOL, "--setup"], capture_output=True, text=True, timeout=600)
    return f"{TOOL.name} --setup: {last_line(done.stderr)}" if done.returncode else None


@functools.cache
def boot(name):
    """Boot a machine, and have all done in it that the table asks for."""
    command = [TOOL, "--timeout", str(BOOT_S), *MACHINES[name].options, "--"]
    inside = [sys.executable, str(Path(__file__).with_name("inside.py")), json.dumps(make_order(name))]
    return subprocess.run(
        [*command, *inside], capture_output=True, text=True, timeout=BOOT_S + 60, stdin=subprocess.DEVNULL
    )


def last_line(text):
    return (text.strip().splitlines() or ["it said nothing"])[-1]
