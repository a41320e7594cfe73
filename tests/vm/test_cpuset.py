"""A cpuset of cgroups version 2 that changes: the test of a cpuset, run again in a virtual machine."""

import shlex
import subprocess
import sys

import pytest

from tests.vm.conftest import TOOL, what_is_missing

pytestmark = pytest.mark.part("vm")

TEST = "tests/live/test_verify.py::test_a_cpuset_that_changes_is_named"
INSIDE = f"""
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control &&
exec {shlex.quote(sys.executable)} -m pytest -q -n 0 -p no:cacheprovider --basetemp /tmp/cpuset {TEST}
"""


def test_a_cpuset_of_version_2_that_changes_is_named():
    if missing := what_is_missing():
        pytest.skip(f"NOTE: no virtual machines: {missing}")
    command = [TOOL, "--timeout", "200", "--topology", "sockets=1,cores=2,threads=1,numa=1"]
    done = subprocess.run(
        [*command, "--", "sh", "-c", INSIDE],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=260,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "1 passed" in done.stdout
