"""What docs/comparison.md and README.md say of other tools and of a run is true where these are installed."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.live.conftest import OMPBIND, clean_environment, required

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/comparison.md").read_text()
SHOW_CPUS = ("grep", "Cpus_allowed_list", "/proc/self/status")

pytestmark = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="CPUs 0 and 1 are not both allowed"
)


def call(*words, env=()):
    return subprocess.run(
        words, env=clean_environment(**dict(env)), text=True, capture_output=True, timeout=60
    )


def rows():
    """Yield (command, what the page says) for each row of the table about the mask of the caller."""
    for line in PAGE.partition("## The mask of the caller")[2].splitlines():
        if found := re.match(r"\| `([^`]+)…`[^|]*\| ([^|]+) \|", line):
            yield found[1].split(), found[2]


ROWS = [
    pytest.param(
        *row, marks=pytest.mark.part("openmpi") if row[0][0] == "mpirun" else (), id=" ".join(row[0])
    )
    for row in rows()
]
assert len(ROWS) == 6
ENVIRONMENTS = {"mpirun": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}}


@pytest.mark.parametrize(("words", "shown"), ROWS)
def test_the_mask_of_the_caller(words, shown):
    required("taskset")
    required(words[0].replace("ompbind", OMPBIND))
    done = call("taskset", "-c", "1", *words, *SHOW_CPUS, env=ENVIRONMENTS.get(words[0], {}))
    found = re.findall(r"Cpus_allowed_list:\s+(\S+)", done.stdout)
    assert found == ([] if shown == "an error" else [shown[0]])
    assert bool(done.returncode) == (shown == "an error")


def test_the_verified_run_of_the_readme():
    if os.cpu_count() != 2:
        pytest.skip("the run is shown for two CPUs")
    shown = re.search(r"^\$ ompbind run (.*)\n((?:.+\n)+?)```", (ROOT / "README.md").read_text(), re.M)
    done = call("sh", "-c", f"ompbind run {shown[1]} 2>&1")
    assert done.returncode == 0
    assert sorted(without_numbers(done.stdout)) == sorted(without_numbers(shown[2]))


def without_numbers(text):
    """Return the words of a text, without the numbers of seconds and samples."""
    return re.sub(r"[\d.]+ s, \d+ samples", "", text).split()
