"""`ompbind exec`: one rank under a launcher, with the variables of each launcher and with real launchers."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.launchers.environments import OPEN_MPI_5
from tests.live.conftest import one_line, required, two_cpus
from tests.tables import rows

ROOT = Path(__file__).parent.parent.parent

REPORT = """
import json, os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMPBIND_NUM_THREADS", "OMPBIND_RUN_ID")
report = {name: os.environ.get(name) for name in names}
report["cpus"] = sorted(os.sched_getaffinity(0))
report["pid"] = os.getpid()
os.write(1, json.dumps(report).encode() + b"\\n")
"""
SHOW = (sys.executable, "-S", "-c", REPORT)

SLURM = {
    "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "6", "SLURM_NODEID": "2", "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "job1",
}  # fmt: skip
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
FLUX = {
    "FLUX_TASK_RANK": "1", "FLUX_TASK_LOCAL_ID": "1", "FLUX_JOB_SIZE": "4", "FLUX_JOB_NNODES": "2",
    "FLUX_JOB_ID": "99",
}  # fmt: skip
TORCHRUN = {
    "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x",
}  # fmt: skip


def read_report(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def read_reports(text):
    return sorted(map(json.loads, text.splitlines()), key=lambda report: int(report["RANK"]))


def numbers(report):
    return [int(report[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]


BY_HAND = "--local-rank 1 --local-size 2"


@pytest.mark.parametrize(("env", "options", "rank", "size"), [
    (SLURM, "", 5, 6), (OPEN_MPI, "", 3, 4), (MPICH, "", 1, 2), (FLUX, "", 1, 4), (TORCHRUN, "", 1, 2),
    ({**SLURM, **OPEN_MPI}, "", 3, 4), ({}, f"{BY_HAND} -n 2", 1, 2), ({"LOCAL_RANK": "0"}, BY_HAND, 1, 2),
    (OPEN_MPI_5, f"{BY_HAND} --rank 5 --size 6", 5, 6),
])  # fmt: skip
def test_finds_its_rank_in_options_or_the_variables_of_launchers(ompbind, env, options, rank, size):
    first, second = two_cpus()
    done = ompbind("exec", "-m", f"{first},{second}", *options.split(), "--", *SHOW, env=env)
    report = read_report(done)
    assert (numbers(report), report["cpus"]) == ([rank, size, 1, 2], [second])
    assert report["OMPBIND_NUM_THREADS"] == "1"


def test_the_command_replaces_ompbind_and_without_a_launcher_it_is_one_rank(start, ompbind):
    _, second = two_cpus()
    process = start("exec", "-m", str(second), "--", *SHOW)
    report = json.loads(process.stdout.readline())
    assert (report["pid"], report["cpus"], numbers(report)) == (process.pid, [second], [0, 1, 0, 1])
    done = ompbind("exec", "-n", "2", "--", "true")
    assert (done.returncode, "no launcher" in done.stderr) == (125, True)


@pytest.mark.parametrize(("launcher", "changes", "options", "message"), rows("""
    slurm | SLURM_STEP_TASKS_PER_NODE= | -n 1 | Slurm does not set the number of ranks on this machine
    mpi   | OMPI_COMM_WORLD_RANK=x     |      | not a number
    mpi   |                            | -n 3 | -n 3: Open MPI has started 2 ranks on this machine
    none  | RANK=3 WORLD_SIZE=8        |      | but LOCAL_RANK is not set
    none  |  | --topology / | a rank can only run on this machine
    none  |  | --verify     | --verify is an option of run
    none  |  | --local-size 2           | --local-size 2 needs --local-rank
    none  |  | --size 3 --local-rank 0 --local-size 1 | --size 3 needs --rank
    none  |  | --local-rank 2 --local-size 2 | --local-rank 2 and --local-size 2 contradict each other
    none  |  | --rank 2 --size 2 --local-rank 0 --local-size 1 | --rank 2 and --size 2 contradict each other
    none  |  | --rank 1 --size 2 --local-rank 0 --local-size 3 | --local-size 3 and --size 2 contradict
    none  |  | --local-rank 0 --local-size 2 -n 3 | -n 3: the caller has started 2 ranks on this machine
    """))  # fmt: skip
def test_a_rank_that_cannot_be_identified_does_not_start(ompbind, launcher, changes, options, message):
    inherited = {"none": {}, "slurm": SLURM, "mpi": OPEN_MPI}[launcher]
    env = inherited | dict(change.split("=") for change in changes.split())
    done = ompbind("exec", *options.split(), "--", "echo", "started", env=env)
    assert (done.returncode, done.stdout) == (125, "")
    assert message in one_line(done.stderr)


@pytest.mark.parametrize(
    ("command", "code"), [(["nosuch-command"], 127), (["/etc/passwd"], 126), (["sh", "-c", "exit 9"], 9)]
)
def test_exit_codes(ompbind, command, code):
    assert ompbind("exec", "--", *command).returncode == code


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_a_rank_has_the_cores_and_service_cores_that_it_requests(ompbind, verb):
    first, second = two_cpus()
    show = ["sh", "-c", 'echo "$OMPBIND_CPUS,$OMPBIND_SERVICE_CPUS,$OMP_NUM_THREADS"; taskset -cp $$']
    required("taskset")
    alone = ompbind(verb, "-m", f"{first},{second}", "-c", "1", "--", *show).stdout.split()
    assert (alone[0], alone[-1]) == (f"{first},,1", str(first))
    served = ompbind(verb, "-m", f"{second},{first}", "--service-cores", "1", "--", *show).stdout.split()
    assert served[0] in (f"{first},{second},1", f"{second},{first},1")
    assert served[-1] in (f"{first},{second}", f"{first}-{second}")
    done = ompbind(verb, "-m", str(first), "-c", "1", "--service-cores", "1", "--", *show)
    assert (done.returncode, "needs 2 cores, but 1 is usable" in one_line(done.stderr)) == (125, True)


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_inside_a_rank_of_ompbind_it_keeps_the_cpus_of_the_rank(ompbind, verb):
    done = ompbind("run", "-n", "2", "--", "ompbind", verb, "--", *SHOW)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(report["cpus"] for report in reports) == [[cpu] for cpu in two_cpus()]
    assert "warning" not in done.stderr


OPEN_MPI_ARGS = ("--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self")
in_openmpi = pytest.mark.part("openmpi")


@pytest.mark.parametrize("binding", ["none", "core"])
@pytest.mark.parametrize(("name", "args"), [
    pytest.param("mpirun.openmpi", (*OPEN_MPI_ARGS, "--bind-to"), marks=in_openmpi),
    ("mpiexec.hydra", ("-bind-to",)),
], ids=["openmpi", "mpich"])  # fmt: skip
def test_under_real_launchers(ompbind, name, args, binding):
    before = (required(name), "-n", "2", *args, binding)
    done = ompbind("exec", "--", *SHOW, before=before)
    reports = read_reports(done.stdout)
    assert [report["cpus"] for report in reports] == [[cpu] for cpu in two_cpus()], done.stderr
    assert [numbers(report) for report in reports] == [[0, 2, 0, 2], [1, 2, 1, 2]]
    assert len({report["OMPBIND_RUN_ID"] for report in reports}) == 1
    assert done.stderr.count("already bound by") == (binding == "core")  # one message for all ranks


def leave_out_values(line):
    """Return a line about a rank without what depends on the machine."""
    return re.sub(r"node \S+: CPUs? [\d-]+|\d threads?", "", line)


@pytest.mark.parametrize("option", ["-v", "--dry-run"])
def test_each_rank_prints_a_line_about_itself(ompbind, option):
    launcher = required("mpiexec.hydra")
    done = ompbind("exec", option, "--", "true", before=(launcher, "-n", "2", "-bind-to", "core"))
    lines = done.stdout.splitlines() if option == "--dry-run" else done.stderr.splitlines()
    found = sorted(line.removeprefix("ompbind: ") for line in lines if " of 2 on node " in line)
    node = os.uname().nodename
    assert found == [
        f"rank {rank} of 2 on node {node}: CPU {cpu}, 1 place, 1 thread"
        for rank, cpu in enumerate(two_cpus())
    ]
    shown = re.findall(r"^ompbind: (rank .* on node .*)", (ROOT / "docs/launchers.md").read_text(), re.M)
    assert [leave_out_values(line) for line in shown] == [leave_out_values(line) for line in found]
    assert done.stdout.count("OpenMP places") == (option == "--dry-run"), "one rank prints the plan"


def test_a_dry_run_starts_and_registers_nothing(ompbind, claims, tmp_path):
    first, second = two_cpus()
    options = ("-m", f"{first},{second}", "--service-cores", "1", "--dry-run")
    done = ompbind("exec", *options, "--", "touch", str(tmp_path / "started"))
    assert (done.returncode, os.listdir(tmp_path), os.listdir(claims)) == (0, [], [])
    assert f"rank 0 of 1 on node {os.uname().nodename}: CPU {first}, service CPU {second}, 1" in done.stdout


@in_openmpi
@pytest.mark.parametrize(("binding", "inner", "warned"), [
    ("none", "run", True), ("none", "run -n 2", True), ("core", "run", True), ("core", "run -n 2", False),
    ("none", "exec -- ompbind run", False),
])  # fmt: skip
def test_a_run_that_a_launcher_starts_several_times_is_warned_about(ompbind, binding, inner, warned):
    launcher = (required("mpirun.openmpi"), "-n", "2", *OPEN_MPI_ARGS, "--bind-to", binding)
    done = ompbind(*inner.split(), "--share", "--", "true", before=launcher)
    found = one_line(done.stderr).count("Open MPI has started 2 copies of 'ompbind run' on this machine")
    assert (done.returncode, found) == (0, warned)


def test_the_first_copy_of_a_run_warns_that_there_are_several(ompbind):
    for local_rank in ("0", "1"):
        env = {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": local_rank}
        done = ompbind("run", "-m", str(min(os.sched_getaffinity(0))), "--", "true", env=env)
        found = one_line(done.stderr).count("Open MPI has started 2 copies of 'ompbind run' on this machine")
        assert (done.returncode, found) == (0, local_rank == "0"), done.stderr


def test_a_run_of_a_launcher_is_warned_about(ompbind):
    launcher = required("mpiexec.hydra")
    done = ompbind("run", "--", launcher, "-n", "2", "true")
    assert f"(use '{Path(launcher).name} -n 2 ompbind exec -- true' instead)" in one_line(done.stderr)
    done = ompbind("run", "--", launcher, "-n", "2", "ompbind", "exec", "--", "true")
    assert "ompbind exec" not in done.stderr


def test_a_mask_of_the_launcher_itself_is_divided_among_ranks(ompbind):
    first, second = two_cpus()
    before = ("taskset", "-c", f"{first},{second}", required("mpiexec.hydra"), "-n", "2")
    reports = read_reports(ompbind("exec", "--", *SHOW, before=before).stdout)
    assert [report["cpus"] for report in reports] == [[first], [second]]
