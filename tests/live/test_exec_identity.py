"""`ompbind exec`: which rank it becomes, by hand and in launchers, and that all ranks make one plan."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launchers.environments import FLUX, MPICH, OPEN_MPI_5, SLURM_PMI, SLURM_STEP
from tests.live.conftest import python_with_torch, required, two_cpus
from tests.live.test_exec import OPEN_MPI_ARGS, REPORT

SHOW = (sys.executable, "-c", REPORT)


def read_reports(text):
    return sorted(map(json.loads, text.splitlines()), key=lambda report: int(report["RANK"]))


def numbers(report):
    return [int(report[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--local-rank 1 --local-size 2", [1, 2, 1, 2]),
        ("--rank 5 --size 6 --local-rank 1 --local-size 2", [5, 6, 1, 2]),
        ("--local-rank 1 --local-size 2 -n 2", [1, 2, 1, 2]),
    ],
)
@pytest.mark.parametrize("env", [{}, OPEN_MPI_5, {"LOCAL_RANK": "0"}], ids=["alone", "mpirun", "partial"])
def test_a_rank_by_hand(ompbind, options, expected, env):
    first, second = two_cpus()
    done = ompbind("exec", "-m", f"{first},{second}", *options.split(), "--", *SHOW, env=env)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (numbers(report), report["cpus"]) == (expected, [second])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--local-rank 0", "--local-rank 0 needs --local-size"),
        ("--local-size 2", "--local-size 2 needs --local-rank"),
        ("--rank 0 --local-rank 0 --local-size 1", "--rank 0 needs --size"),
        ("--size 3 --local-rank 0 --local-size 1", "--size 3 needs --rank"),
        ("--rank 0 --size 1", "--rank 0 needs --local-rank"),
        ("--rank 0 --size 1 --local-rank 0", "--rank 0 needs --local-size"),
        ("--local-rank 2 --local-size 2", "--local-rank 2 and --local-size 2 contradict each other"),
        ("--rank 2 --size 2 --local-rank 0 --local-size 1", "--rank 2 and --size 2 contradict each other"),
        (
            "--rank 1 --size 2 --local-rank 0 --local-size 3",
            "--local-size 3 and --size 2 contradict each other",
        ),
        ("--local-rank 0 --local-size 2 -n 3", "-n 3: the caller has started 2 ranks on this machine"),
        ("--local-rank -1 --local-size 2", "is not a whole number of at least 0"),
    ],
)
def test_options_that_are_missing_or_contradict_each_other_are_errors(ompbind, options, message):
    done = ompbind("exec", *options.split(), "--", "true")
    assert done.returncode == 125
    assert message in " ".join(done.stderr.split())


def test_ranks_of_one_script_are_one_job(ompbind):
    """Each rank has CPUs of its own, also with --avoid: they are no other runs for each other."""
    line = "ompbind exec --local-rank $r --local-size 2 --avoid -- sh -c 'echo $RANK $OMPBIND_CPUS; sleep 1'"
    done = ompbind(before=("sh", "-c", f"for r in 0 1; do {line} & done; wait"))
    assert done.stderr == ""
    assert sorted(done.stdout.split("\n")[:-1]) == [f"{rank} {cpu}" for rank, cpu in enumerate(two_cpus())]


def test_a_rank_that_the_caller_has_bound_keeps_its_cpus(ompbind):
    first, second = two_cpus()
    show = "sh -c 'echo $RANK $OMPBIND_CPUS'"
    lines = (
        f"taskset -c {cpu} ompbind exec --local-rank {rank} --local-size 2 -- {show}"
        for rank, cpu in enumerate((second, first))
    )
    done = ompbind(before=("sh", "-c", "; ".join(lines)))
    assert done.stdout.split("\n")[:-1] == [f"0 {second}", f"1 {first}"]
    assert done.stderr.count("already bound by the caller") == 1


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1"}, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are not set"),
        ({"RANK": "3", "WORLD_SIZE": "8"}, "but LOCAL_RANK is not set"),
        ({**MPICH, "PMI_SIZE": "1"}, "PMI_RANK=1 and PMI_SIZE=1 contradict each other"),
    ],
)
def test_a_rank_that_cannot_be_identified_does_not_start(ompbind, env, message):
    done = ompbind("exec", "--", "echo", "started", env=env)
    assert (done.returncode, done.stdout) == (125, "")
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize(("local_rank", "local_size"), [("2", "3"), ("0", "3")])
def test_the_number_that_ompbind_assumes_can_be_given(ompbind, local_rank, local_size):
    """Flux does not set the number of ranks on a machine: here 3 of 4 tasks are on one of two nodes."""
    env = {**FLUX, "FLUX_JOB_SIZE": "4", "FLUX_JOB_NNODES": "2", "FLUX_TASK_LOCAL_ID": local_rank}
    report = json.loads(ompbind("exec", "--share", "-n", "3", "--", *SHOW, env=env).stdout)
    assert numbers(report) == [1, 4, int(local_rank), int(local_size)]
    done = ompbind("exec", "--share", "--", "true", env=env)
    assert (done.returncode == 0) == (local_rank == "0")
    assert ("give it with -n; it is at least 3" in done.stderr) == (local_rank == "2")


def test_verbose_shows_variables_that_are_not_used(ompbind):
    env = {**SLURM_STEP, **SLURM_PMI, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    text = " ".join(ompbind("exec", "-v", "--share", "--", "true", env=env).stderr.split())
    assert "variables of MPICH or Intel MPI are not used: MPI_LOCALRANKID is not set" in text
    assert "not used" not in ompbind("exec", "--share", "--", "true", env=env).stderr


@pytest.mark.part("openmpi")
def test_a_rank_of_run_inside_mpirun_is_no_rank_of_mpirun(ompbind):
    launcher = (required("mpirun.openmpi"), "-n", "2", *OPEN_MPI_ARGS, "--bind-to", "core")
    done = ompbind("run", "--quiet", "--", "ompbind", "exec", "--", *SHOW, before=launcher)
    assert done.returncode == 0, done.stderr
    reports = read_reports(done.stdout)
    assert sorted(report["cpus"] for report in reports) == [[cpu] for cpu in two_cpus()]
    assert [numbers(report) for report in reports] == [[0, 1, 0, 1]] * 2
    assert "already bound" not in done.stderr


LAUNCHERS = {
    "openmpi": ("mpirun.openmpi", *OPEN_MPI_ARGS, "--bind-to", "none", "-n", "{}"),
    "mpich": ("mpiexec.hydra", "-bind-to", "none", "-n", "{}"),
}
EACH_LAUNCHER = [pytest.param("openmpi", marks=pytest.mark.part("openmpi")), "mpich"]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2")
"""Words after a Python; its name is not torchrun."""


@pytest.mark.part("torch")
@pytest.mark.parametrize("outer", ["", "openmpi", "mpich", "run"])
def test_torchrun_is_the_innermost_launcher(ompbind, outer):
    """In `mpirun`, and in a rank of `ompbind run`, whose variables are called like those of torchrun."""
    name, *args = (word.format(1) for word in LAUNCHERS.get(outer, ("ompbind", "run", "--")))
    before = (name if outer == "run" else required(name), *args) if outer else ()
    done = ompbind("exec", "-v", "--", *SHOW, before=(*before, python_with_torch(), *TORCHRUN))
    reports = read_reports(done.stdout)
    assert [report["cpus"] for report in reports] == [[cpu] for cpu in two_cpus()], done.stderr
    assert [numbers(report) for report in reports] == [[0, 2, 0, 2], [1, 2, 1, 2]]
    assert ("torchrun is the innermost launcher" in " ".join(done.stderr.split())) == (outer in LAUNCHERS)


@pytest.mark.part("openmpi")
@pytest.mark.parametrize(("outer", "inner"), [("openmpi", "mpich"), ("mpich", "openmpi")])
def test_of_two_launchers_the_inner_one_counts(ompbind, outer, inner):
    (one, *outside), (two, *inside) = LAUNCHERS[outer], LAUNCHERS[inner]
    before = (required(one), *outside[:-1], "1", required(two), *inside[:-1], "2")
    done = ompbind("exec", "--", *SHOW, before=before)
    reports = read_reports(done.stdout)
    assert [report["cpus"] for report in reports] == [[cpu] for cpu in two_cpus()], done.stderr
    assert {report["OMPBIND_RUN_ID"].partition("-")[0] for report in reports} == {inner}


@pytest.mark.parametrize("launcher", EACH_LAUNCHER)
def test_different_programs_are_ranks_of_one_job(ompbind, launcher):
    name, *args, _ = LAUNCHERS[launcher]
    one, two = ("ompbind", "exec", "--", *SHOW), ("ompbind", "exec", "--env", "A=1", "--", "env", *SHOW)
    done = ompbind(before=(required(name), *args, "1", *one, ":", "-n", "1", *two))
    reports = read_reports(done.stdout)
    assert [report["cpus"] for report in reports] == [[cpu] for cpu in two_cpus()], done.stderr
    assert "warning" not in done.stderr


def test_ranks_with_different_options_are_warned(ompbind, start):
    first, second = two_cpus()
    command = ("exec", "--run-id", "job", "--local-size", "2")
    one = start(*command, "--local-rank", "0", "-m", f"{first}|{second}", "--", "sh", "-c", "echo up; read x",
                stdin=subprocess.PIPE)  # fmt: skip
    assert one.stdout.readline() == "up\n"
    rest = ("--local-rank", "1", "-m")
    same = ompbind(*command, *rest, f"{first}|{second}", "--", "true")
    other = ompbind(*command, *rest, f"{second}|{first}", "--", "true")
    assert (same.returncode, same.stderr, other.returncode) == (0, "", 0)
    text = f"other ranks of this job (pid {one.pid}) have divided the CPUs in another way: give all ranks"
    assert text in " ".join(other.stderr.split())


LOCAL_SIZE = 8
CONTENTS = '[defaults]\nshare = true\nthreads = 1\nenv = { MODEL = "m-{rank}" }\n'
SHOW_ALL = """
import json, os
report = {"env": dict(os.environ), "cpus": sorted(os.sched_getaffinity(0))}
with open("rank-" + os.environ["RANK"], "w") as file:
    json.dump(report, file)
"""
"""Writes files: Open MPI mixes long lines of ranks."""


WRITE_PLAN = """
import sys
from ompbind.cli import exec as verb
from ompbind.cli.main import main
from ompbind.planning.rank_command import make_local_identities, make_variables
from ompbind.report.plan_json import render_plan_json

become = verb._become

def write_and_become(plan, identity, spec, claim):
    variables = [make_variables(plan, each, spec) for each in make_local_identities(plan)]
    with open(f"plan-{identity.rank}", "w") as file:
        print(render_plan_json(plan, variables), file=file)
    become(plan, identity, spec, claim)

verb._become = write_and_become
main(["exec", *sys.argv[1:]])
"""
"""`ompbind exec` that writes its plan too, as `ompbind plan --format json` does."""


@pytest.fixture
def busy():
    """Keep all CPUs busy during a test."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in two_cpus()]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.parametrize("launcher", EACH_LAUNCHER)
def test_every_rank_makes_the_plan_of_the_machine(ompbind, tmp_path, busy, launcher):
    """The plan of each rank is what `ompbind plan -n LOCAL_SIZE` prints, and each rank has its part of it."""
    (tmp_path / "ompbind.toml").write_text(CONTENTS)
    options = {"cwd": tmp_path, "env": {"HOME": str(tmp_path)}}
    rest = ("--run-id", "job", "--", sys.executable, "-c", SHOW_ALL)
    plan = ompbind("plan", "-n", str(LOCAL_SIZE), "--format", "json", *rest, **options).stdout
    name, *args = (word.format(LOCAL_SIZE) for word in LAUNCHERS[launcher])
    for _ in range(2):
        before = (required(name), *args, sys.executable, "-c", WRITE_PLAN, *rest)
        done = ompbind(before=before, **options)
        assert done.returncode == 0, done.stderr
        for number, rank in enumerate(json.loads(plan)["ranks"]):
            assert (tmp_path / f"plan-{number}").read_text() == plan
            file = tmp_path / f"rank-{number}"
            report = json.loads(file.read_text())
            assert {name: report["env"].get(name) for name in rank["env"]} == rank["env"]
            assert report["cpus"] == sorted(rank["cpus"])
            file.unlink()
        assert "warning: other ranks" not in done.stderr


@pytest.mark.parametrize("launcher", EACH_LAUNCHER)
def test_ranks_of_a_job_avoid_the_same_cpus(ompbind, start, tmp_path, launcher):
    """The first rank decides for all, although the other run exits as soon as a rank has started."""
    first, second = two_cpus()
    wait = "while [ $(ls {}/started-* 2>/dev/null | wc -l) -lt {} ]; do sleep 0.05; done"
    other = start("run", "-m", str(second), "--", "sh", "-c", f"echo up; {wait.format(tmp_path, 1)}")
    assert other.stdout.readline() == "up\n"
    name, *args = (word.format(LOCAL_SIZE) for word in LAUNCHERS[launcher])
    code = f"echo $RANK $OMPBIND_CPUS; touch {tmp_path}/started-$RANK; {wait.format(tmp_path, LOCAL_SIZE)}"
    done = ompbind("exec", "--avoid", "-s", "all", "--", "sh", "-c", code, before=(required(name), *args))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} {first}" for rank in range(LOCAL_SIZE)]
    assert other.wait(20) == 0


def test_nothing_of_ompbind_is_left_in_a_rank(start, claims):
    """No code, no process, no memory: only the open file of its claim, which releases the CPUs at its end."""
    rank = start(
        "exec", "--local-rank", "0", "--local-size", "1", "--", "sh", "-c", "echo up; read x", stdin=-1
    )
    assert rank.stdout.readline() == "up\n"
    process = Path(f"/proc/{rank.pid}")
    assert not re.search("python|ompbind", (process / "maps").read_text())
    files = [os.readlink(file) for file in (process / "fd").iterdir() if int(file.name) > 2]
    assert [Path(file).parent for file in files] == [claims]
    assert (process / f"task/{rank.pid}/children").read_text() == ""
    assert "python" not in (process / "cmdline").read_text()
