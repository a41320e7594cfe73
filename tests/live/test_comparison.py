"""What docs/coming-from.md says of other tools and ompbind, and README.md of a run, is true."""

import os
import re
import shlex

import pytest

from ompbind.cli.main import load_verb
from tests.live.conftest import OMPBIND, one_line, required, run_program
from tests.packaging.scripts import ROOT

PAGE = (ROOT / "docs/coming-from.md").read_text()
TABLE = PAGE.partition("## The mask of the caller")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| `([^`]+)…`[^|]*\| ([^|]+) \|", TABLE, re.MULTILINE)
"""The commands of the page, and what it says: the CPUs of the rank, or an error."""
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

EXAMPLES = dict.fromkeys(re.findall(r"^\| `.*` .*\| `(?:[^`|]* )?ompbind (\w+) ?(.*?)`", PAGE, re.MULTILINE))
"""What the page shows for commands of other tools: (verb, arguments)."""


@pytest.mark.parametrize(("verb", "text"), EXAMPLES)
def test_commands_for_those_of_other_tools_work(verb, text, tmp_path):
    assert len(EXAMPLES) >= 40
    # the recording has the name of the device, and none of its network interface
    args = shlex.split(text.replace("\\|", "|").replace("ib0", "mlx5_0"))
    if verb not in ("run", "exec", "bench", "plan"):
        load_verb(verb).make_context(verb, args)
        return
    rank = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    sizes = dict.fromkeys(("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"), "2")
    env = {"OMPBIND_TOPOLOGY": "sample:dgx-a100", **({**rank, **sizes} if verb == "exec" else {})}
    dry = [] if verb == "plan" else ["--dry-run"]
    done = run_program(OMPBIND, verb, *dry, *args, env=env, cwd=tmp_path)
    printed = re.sub("warning: .* no effect with --dry-run", "", one_line(done.stderr))
    assert (done.returncode, re.findall("error|warning", printed)) == (0, []), printed


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
