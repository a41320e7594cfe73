"""`make demo` shows the ranks in order, and CONTRIBUTING.md shows its output."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.live.conftest import required, run_program
from tests.packaging.scripts import ROOT

VENV = Path(sys.executable).parent.parent


def without_numbers(line):
    """Return a line without what differs between machines and runs: pids, paths and the machine itself."""
    numbers = r"pid \d+|\(/.*\)|^\w+, \d+ CPUs.*|[\d.]+ s +\(.*\)|[\d.]+ times as|\d runs"
    return re.sub(numbers, "", line.replace(f"{VENV}/", ".venv/"))


@pytest.mark.two_cpus
def test_demo_prints_what_the_page_shows():
    required("make")
    if not (VENV / ".installed").exists():
        pytest.skip("needs the environment that make sets up")
    command = ("make", "--no-print-directory", "demo", f"VENV={os.path.relpath(VENV, ROOT)}")
    printed = run_program(*command, cwd=ROOT, env={"MAKEFLAGS": "", "MAKELEVEL": ""}, check=True).stdout
    assert re.findall(r"^rank (\d+).*pid", printed, re.M) == ["0", "1"]
    page = (ROOT / "CONTRIBUTING.md").read_text()
    shown = re.search(r"^```console\n(\.venv/bin/ompbind plan.*?)^```", page, re.M | re.S)
    lines, expected = ([*map(without_numbers, text.splitlines())] for text in (printed, shown[1]))
    commands = re.compile(r"\.venv/|cat |next: ")
    assert [*filter(commands.match, lines)] == [*filter(commands.match, expected)]
    assert lines[-1] == expected[-1] != ""
    if "libgomp:" in printed and shutil.which("gcc") and os.cpu_count() == len(os.sched_getaffinity(0)) == 2:
        assert all(line in lines for line in expected), "other OpenMP runtimes may be installed too"
