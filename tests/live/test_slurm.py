"""`ompbind exec` inside a real Slurm of one node, started for the test on loopback."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest

from ompbind.cpuset import CpuSet
from tests.live.conftest import OMPBIND, clean_environment, required, run_program, two_cpus, wait_until
from tests.live.test_exec import REPORT
from tests.live.test_run import COUNT_SIGNALS
from tests.slurm import run_batch, start_slurm

pytestmark = pytest.mark.part("slurm")

QUOTED = shlex.quote(OMPBIND)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with start_slurm(tmp_path_factory.mktemp("slurm"), clean_environment()) as env:
        yield env


def run_job(directory, script, env):
    """Run the script of a batch job for two tasks; return its exit code and output."""
    path, out = directory / "job.sh", directory / "out"
    path.write_text(f"#!/bin/sh\n{script}\n")
    return run_batch("-n", "2", "-o", str(out), str(path), env=env), out.read_text()


def test_the_script_of_a_batch_job_is_a_single_rank(slurm, tmp_path):
    command = f"{QUOTED} exec --share -- sh -c 'echo rank $RANK of $WORLD_SIZE on $OMPBIND_CPUS'"
    code, out = run_job(tmp_path, command, slurm)
    text = " ".join(out.split())
    assert (code, "this is the script or shell of a Slurm job, not one of its ranks" in text) == (0, True)
    assert text.endswith(f"rank 0 of 1 on {CpuSet(os.sched_getaffinity(0))}")


@pytest.mark.parametrize("options", ["-n 2", "-n 3 -s all", "-n 1 --memory bind -m {}"])
def test_an_exported_plan_is_what_srun_does(slurm, options):
    """In a job that has the whole node, each task has the CPUs and the memory policy of its rank."""
    cpus, everything = two_cpus(), str(CpuSet(os.sched_getaffinity(0)))
    show = f"'grep Cpus_allowed_list /proc/self/status; {required('numactl')} --show | grep policy'"
    code = f"srun --label $({QUOTED} plan {options.format(cpus[1])} --format slurm) sh -c {show}"
    words = (required("salloc"), "--quiet", "--exclusive", "--ntasks=1", "sh", "-c", code)
    done = run_program(*words, env=slurm)
    tasks = sorted(re.findall(r"(\d+): Cpus_allowed_list:\s*(\S+)", done.stdout))
    expected = {"-n 2": cpus, "-n 3 -s all": [everything] * 3}.get(options, cpus[1:])
    assert tasks == [(str(task), str(cpus)) for task, cpus in enumerate(expected)], done.stderr
    is_bound = "--memory" in options and os.path.exists("/sys/devices/system/node/node0")
    assert done.stdout.count("policy: bind") == is_bound, done.stdout


IN_JOB = {
    "pmi": "srun -n 2 --cpu-bind=none --mpi=pmi2 {}",
    "programs": "srun -n 2 --cpu-bind=none --multi-prog {programs}",
    "openmpi": "mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -n 2 {}",
    "hydra": "mpiexec.hydra -bind-to none -n 2 {}",
}


@pytest.mark.parametrize("launcher", IN_JOB)
def test_launchers_in_the_script_of_a_job_start_ranks(slurm, tmp_path, launcher):
    """Hydra and Open MPI count as the innermost launchers; Hydra starts its own processes with srun."""
    programs, show = tmp_path / "programs", tmp_path / "show.py"
    show.write_text(REPORT)
    command = f"{QUOTED} exec -- {shlex.quote(sys.executable)} {show}"
    programs.write_text(f"0 {command}\n1 {command} second\n")
    line = IN_JOB[launcher].format(command, programs=programs)
    required(line.split()[0])
    code, out = run_job(tmp_path, line, slurm)
    assert code == 0, out
    reports = sorted(map(json.loads, out.splitlines()), key=lambda report: report["RANK"])
    names = ("cpus", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    expected = [[[cpu], str(rank), "2"] for rank, cpu in enumerate(two_cpus())]
    assert [[report[name] for name in names] for report in reports] == expected
    family = {"openmpi": "openmpi", "hydra": "mpich"}.get(launcher, "slurm")
    assert {report["OMPBIND_RUN_ID"].partition("-")[0] for report in reports} == {family}


def test_only_several_tasks_of_a_step_are_copies(slurm, tmp_path):
    """The script of a batch job has the variables of a task too, but there is one script."""
    command = f"{QUOTED} run --share -- true"
    done = run_program("srun", "-n", "2", "--cpu-bind=none", "sh", "-c", command, env=slurm)
    assert " ".join(done.stderr.split()).count("Slurm has started 2 copies of 'ompbind run'") == 1
    assert run_job(tmp_path, command, slurm) == (0, "")


@pytest.fixture(scope="module")
def slurm_of_groups(tmp_path_factory):
    with start_slurm(tmp_path_factory.mktemp("slurm-pgid"), clean_environment(), proctrack="pgid") as env:
        yield env


@pytest.mark.parametrize("launch", ["srun -n 1 -c 2", "sbatch -n 2 --wait -o {out} {job}"])
@pytest.mark.parametrize("cluster", ["slurm", "slurm_of_groups"])
def test_a_rank_of_run_gets_each_signal_of_scancel_once(request, tmp_path, cluster, launch):
    """How Slurm tracks processes decides whether it signals all of them, or only the process of the task."""
    env, out, job = request.getfixturevalue(cluster), tmp_path / "out", tmp_path / "job.sh"
    command = [OMPBIND, "run", "-n", "2", "--share", "--", sys.executable, "-S", "-c", COUNT_SIGNALS]
    job.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n")
    out.touch()
    words = launch.format(out=out, job=job).split() + (command if launch.startswith("srun") else [])
    with out.open("a") as file, subprocess.Popen(words, env=env, stdout=file, stderr=file) as process:

        def wait_for(line):
            wait_until(lambda: out.read_text().count(f"{line}\n") >= 2, f"both ranks print {line}")

        wait_for("up")
        words = ["squeue", "-h", "-o", "%i", *["-s"][: launch.startswith("srun")]]
        target = run_program(*words, env=env).stdout.split()[0]
        for number in (signal.SIGRTMIN, signal.SIGRTMIN + 1):
            run_program("scancel", "--full", "-s", str(int(number)), target, env=env)
            wait_for(int(number))
        run_program("scancel", "--full", "-s", "TERM", target, env=env)
        process.wait(30)
    lines = [line for line in out.read_text().splitlines() if re.fullmatch(r"\d+|SIGTERM .*", line)]
    expected = [int(signal.SIGRTMIN), signal.SIGRTMIN + 1, "SIGTERM None"]
    assert sorted(lines) == sorted(map(str, expected * 2)), out.read_text()


SHOW_TASK = """\
import json, os
names = ("RANK", "LOCAL_RANK", "OMP_NUM_THREADS", "OMPBIND_CPUS", "KMP_AFFINITY", "QUOTED")
print(json.dumps([*map(os.environ.get, names), sorted(os.sched_getaffinity(0))]))
"""


@pytest.fixture(scope="module")
def slurm_with_prolog(tmp_path_factory):
    directory = tmp_path_factory.mktemp("slurm-prolog")
    prolog = directory / "prolog"
    command = f'{QUOTED} exec --task-prolog $PROLOG_OPTIONS 2>"${{MESSAGES:-/dev/null}}"'
    prolog.write_text(f'#!/bin/sh\n[ "$NO_OMPBIND" ] || {command} || "${{ON_ERROR:-true}}"\n')
    prolog.chmod(0o755)
    settings = f"TaskProlog={prolog}"
    with start_slurm(directory, clean_environment(), settings=settings) as env:
        yield env


@pytest.mark.parametrize("binding", ["none", "cores"])
def test_a_task_prolog_binds_each_task(slurm_with_prolog, binding):
    env = {**slurm_with_prolog, "KMP_AFFINITY": "compact", "PROLOG_OPTIONS": "-q --env QUOTED=$HOME'\""}
    done = run_program("srun", "-n", "2", f"--cpu-bind={binding}", sys.executable, "-c", SHOW_TASK, env=env)
    expected = [[str(n), str(n), "1", str(cpu), None, "$HOME'\"", [cpu]] for n, cpu in enumerate(two_cpus())]
    assert sorted(map(json.loads, done.stdout.splitlines())) == expected, done.stderr


@pytest.mark.parametrize(("variables", "code", "message"), [
    ({"NO_OMPBIND": "1"}, 0, ""),
    ({"PROLOG_OPTIONS": "-m core:65000"}, 0, "this task is not bound"),
    ({"PROLOG_OPTIONS": "--wrong"}, 0, "--wrong"),
    ({"PROLOG_OPTIONS": "-m core:65000 --strict", "ON_ERROR": "false"}, 1, "ompbind: error: "),
], ids=["switched-off", "failed", "wrong-option", "strict"])  # fmt: skip
def test_a_task_without_a_binding_by_its_prolog(slurm_with_prolog, tmp_path, variables, code, message):
    """Slurm discards what a prolog writes to standard error, and stops a task whose prolog fails."""
    messages = tmp_path / "messages"
    messages.touch()
    env = {**slurm_with_prolog, **variables, "MESSAGES": str(messages)}
    done = run_program("srun", "-n", "1", "--exclusive", sys.executable, "-c", SHOW_TASK, env=env)
    assert (done.returncode, message in " ".join(messages.read_text().split())) == (code, True), done.stderr
    assert [json.loads(line)[:-1] for line in done.stdout.splitlines()] == [[None] * 6] * (code == 0)


def test_a_task_prolog_leaves_the_script_of_a_batch_job(slurm_with_prolog, tmp_path):
    code, out = run_job(tmp_path, 'echo "${RANK-none} ${OMPBIND_CPUS-none}"', slurm_with_prolog)
    assert (code, out) == (0, "none none\n")
