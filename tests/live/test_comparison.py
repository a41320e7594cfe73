"""What docs/coming-from.md says of other tools, and README.md of a run, is true."""

import os
import re

import pytest

from tests.live.conftest import OMPBIND, one_line, required, run_program
from tests.packaging.scripts import ROOT

PAGE = (ROOT / "docs/coming-from.md").read_text()
TABLE = PAGE.partition("## The mask of the caller")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| `([^`]+)…`[^|]*\| ([^|]+) \|", TABLE, re.MULTILINE)
"""The commands of the page, and what it says: the CPUs of the rank, or an error."""
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.mark.parametrize(
    ("command", "shown"),
    [pytest.param(*row, marks=[pytest.mark.part("openmpi")] * row[0].startswith("mpirun")) for row in ROWS],
)
def test_the_mask_of_the_caller(command, shown):
    assert len(ROWS) == 6
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs CPUs 0 and 1")
    words = command.split()
    required("taskset")
    required(words[0].replace("ompbind", OMPBIND))
    show = ("grep", "Cpus_allowed_list", "/proc/self/status")
    done = run_program("taskset", "-c", "1", *words, *show, env=AS_ROOT)
    found = re.findall(r"Cpus_allowed_list:\s+(\S+)", done.stdout)
    assert (found, done.returncode != 0) == (([], True) if shown == "an error" else ([shown[0]], False))


@pytest.mark.two_cpus
def test_the_verified_run_of_the_readme():
    if os.cpu_count() != 2:
        pytest.skip("needs a machine with two CPUs, as on the page")
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r"^\$ ompbind run (.*)\n((?:.+\n)+?)```", readme, re.MULTILINE)
    done = run_program("sh", "-c", f"ompbind run {shown[1]} 2>&1")
    assert done.returncode == 0
    numbers = r"[\d.]+ of [\d.]+ s, \d+ samples?|; other processes used .* ran\b"  # and the load of others
    found, expected = (
        sorted(re.sub(numbers, "", one_line(text)).split()) for text in (done.stdout, shown[2])
    )
    assert found == expected
