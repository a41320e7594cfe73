"""Problems that people reported in public threads, each tried with ompbind: `problems.toml` has the commands.

A problem gives 2 points if ompbind solves it, or says what is wrong and what to type; 1 for a half of this.
The points are measured: a problem that gets better needs a new number in the table, too.
"""

import re
import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.live.conftest import need_libgomp, one_line, run_program, skip_without, two_cpus, write_program
from tests.machines import Shape, write_tree
from tests.recordings import NO_RECORDINGS, RECORDINGS
from tests.toys import PIP_SCRIPT

HERE = Path(__file__).parent
PROBLEMS = tomllib.loads((HERE / "problems.toml").read_text())["problem"]
CPU = "sys/devices/system/cpu"
CGROUP = "sys/fs/cgroup"
FILES = {
    "quota": f"{CGROUP}/cpu.max", "cpuset": f"{CGROUP}/cpuset.cpus.effective", "isolated": f"{CPU}/isolated",
}  # fmt: skip
"""The files of a machine that a problem describes by one word each."""


def make_machine(directory, recording="", cores=1, nodes=1, **words):
    if recording:
        path = RECORDINGS / f"dumps/{recording}.tar.gz"
        if not path.exists():
            pytest.skip(NO_RECORDINGS)
        return path
    mounts = {"proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"}
    files = {FILES[word]: f"{text}\n" for word, text in words.items()}
    return write_tree(directory, Shape(nodes=nodes, cores=cores // nodes), {**mounts, **files})


def run(problem, directory):
    work, stubs, machine = (directory / name for name in ("work", "stubs", "machine"))
    work.mkdir()
    stubs.mkdir()
    for name in problem.get("scripts", ()):
        write_program(stubs / name, "", PIP_SCRIPT)
    for name in problem.get("programs", ()):
        shutil.copy("/bin/true", stubs / name)
    sources = {"P": HERE / "programs", "LIVE": HERE.parent / "live"}
    for name, path in sources.items():  # commands do not quote the path of the clone
        (directory / name).symlink_to(path)
    env = {name: str(directory / name) for name in sources}
    if "machine" in problem:
        env["M"] = str(make_machine(machine, **problem["machine"]))
    script = f"PATH=$PATH:{stubs}; exec 2>&1; {problem['command']}"
    done = run_program("taskset", "-c", "0,1", "bash", "-c", script, cwd=work, env=env, timeout=300)
    return one_line(f"{done.stdout} exit {done.returncode}")


def points_of(problem, output):
    if any(re.search(text, output) for text in problem.get("never", ())):
        return 0
    if all(re.search(text, output) for text in problem["solved"]):
        return 2
    return int("half" in problem and all(re.search(text, output) for text in problem["half"]))


def case(problem):
    """Make a case: problems that need packages belong to a part of `make test-all`."""
    marks = [pytest.mark.part("problems")] if "needs" in problem else []
    marks += [pytest.mark.alone] if problem.get("alone") else []
    return pytest.param(problem, id=problem["id"], marks=marks)


@pytest.mark.parametrize("problem", [case(problem) for problem in PROBLEMS])
def test_a_problem_gives_its_points(problem, tmp_path, monkeypatch):
    if two_cpus() != [0, 1] or Path(f"/{CPU}/cpu0/topology/core_cpus_list").read_text() != "0\n":
        pytest.skip("needs two cores with CPUs 0 and 1, without hardware threads")
    monkeypatch.setenv("OMPBIND_RUNTIME_DIR", str(tmp_path / "claims"))
    (tmp_path / "claims").mkdir(mode=0o700)
    for package in problem.get("needs", ()):
        if find_spec(package) is None:
            skip_without(package, "make test-all PARTS=problems")
    if problem.get("libgomp"):
        need_libgomp()
    output = run(problem, tmp_path)
    assert points_of(problem, output) == problem.get("points", 2), f"{problem['thread']}\n{output}"


def test_the_problems_reach_55_of_60_points():
    """The number of problems may grow: their points are scaled to thirty problems."""
    assert len({problem["thread"] for problem in PROBLEMS}) == len(PROBLEMS) >= 30
    points = sum(problem.get("points", 2) for problem in PROBLEMS)
    assert points / len(PROBLEMS) * 30 >= 55
