"""What README.md says of a run is true."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.live.conftest import clean_environment

ROOT = Path(__file__).parent.parent.parent


def test_the_verified_run_of_the_readme():
    if os.cpu_count() != 2:
        pytest.skip("the run is shown for two CPUs")
    shown = re.search(r"^\$ ompbind run (.*)\n((?:.+\n)+?)```", (ROOT / "README.md").read_text(), re.M)
    command = f"ompbind run {shown[1]} 2>&1"
    done = subprocess.run(
        command, shell=True, env=clean_environment(), text=True, capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert sorted(without_numbers(done.stdout)) == sorted(without_numbers(shown[2]))


def without_numbers(text):
    """Return the words of a text, without the numbers of seconds and samples."""
    return re.sub(r"[\d.]+ s, \d+ samples", "", text).split()
