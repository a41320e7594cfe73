"""`ompbind exec`: which rank it becomes, by hand and in launchers, and that all ranks make one plan."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.live.conftest import one_line, required, two_cpus
from tests.live.test_exec import OPEN_MPI_ARGS, SHOW, in_openmpi, read_reports


@pytest.mark.two_cpus
def test_ranks_of_one_script_are_one_job(ompbind, tmp_path):
    """Each rank has CPUs of its own, also with --avoid: they are no other runs for each other."""
    wait = f"touch {tmp_path}/$RANK; until [ -e {tmp_path}/0 -a -e {tmp_path}/1 ]; do sleep 0.02; done"
    line = f"ompbind exec --local-rank $r --local-size 2 --avoid -- sh -c 'echo $RANK $OMPBIND_CPUS; {wait}'"
    done = ompbind(before=("sh", "-c", f"for r in 0 1; do {line} & done; wait"))
    assert done.stderr == ""
    assert sorted(done.stdout.split("\n")[:-1]) == [f"{rank} {cpu}" for rank, cpu in enumerate(two_cpus())]


def test_a_rank_that_the_caller_has_bound_keeps_its_cpus(ompbind):
    first, second = two_cpus()
    line = "taskset -c {} ompbind exec --local-rank {} --local-size 2 -- sh -c 'echo $RANK $OMPBIND_CPUS'"
    done = ompbind(before=("sh", "-c", f"{line.format(second, 0)}; {line.format(first, 1)}"))
    assert done.stdout.split("\n")[:-1] == [f"0 {second}", f"1 {first}"]
    assert done.stderr.count("already bound by the caller") == 1


LAUNCHERS = {
    "openmpi": ("mpirun.openmpi", *OPEN_MPI_ARGS, "--bind-to", "none", "-n", "{}"),
    "mpich": ("mpiexec.hydra", "-bind-to", "none", "-n", "{}"),
}
EACH_LAUNCHER = [pytest.param("openmpi", marks=in_openmpi), "mpich"]


def launcher_words(launcher, number):
    name, *args = LAUNCHERS[launcher]
    return (required(name), *(word.format(number) for word in args))


@in_openmpi
@pytest.mark.parametrize(("outer", "inner"), [("openmpi", "mpich"), ("mpich", "openmpi")])
def test_of_two_launchers_the_inner_one_counts(ompbind, outer, inner):
    before = (*launcher_words(outer, 1), *launcher_words(inner, 2))
    done = ompbind("exec", "--", *SHOW, before=before)
    reports = read_reports(done.stdout)
    assert [report["cpus"] for report in reports] == [[cpu] for cpu in two_cpus()], done.stderr
    assert {report["OMPBIND_RUN_ID"].partition("-")[0] for report in reports} == {inner}


WAIT = ("sh", "-c", "echo up; exec sleep 300")


def test_ranks_with_different_options_are_warned(ompbind, start):
    first, second = two_cpus()
    command = ("exec", "--run-id", "job", "--local-size", "2")
    one = start(*command, "--local-rank", "0", "-m", f"{first}|{second}", "--", *WAIT, up=1)
    rest = ("--local-rank", "1", "-m")
    same = ompbind(*command, *rest, f"{first}|{second}", "--", "true")
    other = ompbind(*command, *rest, f"{second}|{first}", "--", "true")
    assert (same.returncode, same.stderr, other.returncode) == (0, "", 0)
    text = f"other ranks of this job (pid {one.pid}) have divided the CPUs in another way: give all ranks"
    assert text in one_line(other.stderr)


LOCAL_SIZE = 8
CONTENTS = '[defaults]\nshare = true\nthreads = 1\nenv = { MODEL = "m-{rank}" }\n'
SHOW_ALL = """
import json, os
report = {"env": dict(os.environ), "cpus": sorted(os.sched_getaffinity(0))}
with open("rank-" + os.environ["RANK"], "w") as file:
    json.dump(report, file)
"""
"""Writes files: Open MPI mixes long lines of ranks."""


@pytest.mark.parametrize("launcher", EACH_LAUNCHER)
def test_every_rank_has_its_part_of_the_plan_of_the_machine(ompbind, tmp_path, launcher):
    """It is what `ompbind plan -n LOCAL_SIZE` prints."""
    (tmp_path / "ompbind.toml").write_text(CONTENTS)
    options = {"cwd": tmp_path, "env": {"HOME": str(tmp_path)}}
    rest = ("--run-id", "job", "--", sys.executable, "-S", "-c", SHOW_ALL)
    plan = ompbind("plan", "-n", str(LOCAL_SIZE), "--format", "json", *rest, **options).stdout
    done = ompbind("exec", *rest, before=launcher_words(launcher, LOCAL_SIZE), **options)
    assert (done.returncode, "warning: other ranks" in done.stderr) == (0, False), done.stderr
    for number, rank in enumerate(json.loads(plan)["ranks"]):
        report = json.loads((tmp_path / f"rank-{number}").read_text())
        assert {name: report["env"].get(name) for name in rank["env"]} == rank["env"]
        assert report["cpus"] == sorted(rank["cpus"])


@pytest.mark.parametrize("launcher", EACH_LAUNCHER)
def test_ranks_of_a_job_avoid_the_same_cpus(ompbind, start, tmp_path, launcher):
    """The first rank decides for all, although the other run exits as soon as a rank has started."""
    first, second = two_cpus()
    wait = "while [ $(ls {}/started-* 2>/dev/null | wc -l) -lt {} ]; do sleep 0.05; done"
    other = start("run", "-m", str(second), "--", "sh", "-c", f"echo up; {wait.format(tmp_path, 1)}", up=1)
    code = f"echo $RANK $OMPBIND_CPUS; touch {tmp_path}/started-$RANK; {wait.format(tmp_path, LOCAL_SIZE)}"
    before = launcher_words(launcher, LOCAL_SIZE)
    done = ompbind("exec", "--avoid", "-s", "all", "--", "sh", "-c", code, before=before)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} {first}" for rank in range(LOCAL_SIZE)]
    assert other.wait(20) == 0


def test_nothing_of_ompbind_is_left_in_a_rank(start, claims):
    """No code, no process, no memory: only the open file of its claim, which releases the CPUs at its end."""
    rank = start("exec", "--local-rank", "0", "--local-size", "1", "--", *WAIT, up=1)
    process = Path(f"/proc/{rank.pid}")
    assert not re.search("python|ompbind", (process / "maps").read_text())
    files = [os.readlink(file) for file in (process / "fd").iterdir() if int(file.name) > 2]
    assert [Path(file).parent for file in files] == [claims]
    assert (process / f"task/{rank.pid}/children").read_text() == ""
