"""`make demo` shows the ranks in order, and docs/development.md shows its output."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.conftest import clean_environment, required

ROOT = Path(__file__).parent.parent.parent
VENV = Path(sys.executable).parent.parent


def without_numbers(line):
    """Return a line without what differs between machines and runs: pids, paths and the machine itself."""
    line = line.replace(f"{VENV}/", ".venv/")
    return re.sub(r"pid \d+|\(/.*\)|^\w+, \d+ CPUs.*", "", line)


def test_demo_prints_what_the_page_shows():
    required("make")
    if not (VENV / ".installed").exists():
        pytest.skip("not in the environment that make sets up")
    command = ["make", "--no-print-directory", "demo", f"VENV={VENV}"]
    env = clean_environment(MAKEFLAGS="", MAKELEVEL="")
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=60)
    printed = done.stdout.splitlines()
    ranks = [line.split()[1] for line in printed if line.startswith("rank ") and "pid" in line]
    assert ranks == ["0", "1"]
    if "libgomp:" not in done.stdout:
        pytest.skip("no libgomp on this machine: docs/development.md shows threads of libgomp")
    page = (ROOT / "docs/development.md").read_text()
    shown = re.search(r"^```console\n(\.venv/bin/ompbind plan.*?)^```", page, re.M | re.S)
    if os.cpu_count() == len(os.sched_getaffinity(0)) == 2:
        lines = map(without_numbers, printed)  # other OpenMP runtimes may be installed too
        assert all(without_numbers(line) in lines for line in shown[1].splitlines())
