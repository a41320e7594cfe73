"""`ompbind exec`: one rank under a launcher, with the variables of each launcher and with real launchers."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.live.conftest import required, two_cpus

ROOT = Path(__file__).parent.parent.parent

REPORT = """
import json, os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS", "OMPBIND_RUN_ID")
report = {name: os.environ.get(name) for name in names}
report["cpus"] = sorted(os.sched_getaffinity(0))
report["pid"] = os.getpid()
os.write(1, json.dumps(report).encode() + b"\\n")
"""

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
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "x",
}


def read_report(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("env", "rank", "size"),
    [(SLURM, "5", "6"), (OPEN_MPI, "3", "4"), (MPICH, "1", "2"), (FLUX, "1", "4"), (TORCHRUN, "1", "2")],
    ids=["slurm", "openmpi", "mpich", "flux", "torchrun"],
)
def test_finds_its_rank_in_the_variables_of_launchers(ompbind, env, rank, size):
    first, second = two_cpus()
    report = read_report(
        ompbind("exec", "-m", f"{first},{second}", "--", sys.executable, "-c", REPORT, env=env)
    )
    assert (report["RANK"], report["WORLD_SIZE"]) == (rank, size)
    assert (report["LOCAL_RANK"], report["LOCAL_WORLD_SIZE"]) == ("1", "2")
    assert report["cpus"] == [second]
    assert report["OMP_NUM_THREADS"] == "1"


def test_an_inner_launcher_comes_before_slurm(ompbind):
    report = read_report(ompbind("exec", "--", sys.executable, "-c", REPORT, env={**SLURM, **OPEN_MPI}))
    assert report["RANK"] == "3"
    assert report["OMPBIND_RUN_ID"] == "openmpi-job1"


def test_the_command_replaces_ompbind(start):
    process = start("exec", "--", sys.executable, "-c", REPORT)
    assert json.loads(process.stdout.readline())["pid"] == process.pid
    assert process.wait() == 0


def test_without_a_launcher_it_is_one_rank(ompbind):
    _, second = two_cpus()
    report = read_report(ompbind("exec", "-m", str(second), "--", sys.executable, "-c", REPORT))
    assert (report["cpus"], report["RANK"], report["WORLD_SIZE"]) == ([second], "0", "1")
    done = ompbind("exec", "-n", "2", "--", "true")
    assert done.returncode == 125
    assert "no launcher" in done.stderr


@pytest.mark.parametrize(
    ("env", "args", "message"),
    [
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": ""}, [], "give it with -n"),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "x"}, [], "not a number"),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "9"}, [], "contradict"),
        (OPEN_MPI, ["-n", "3"], "-n 3: Open MPI has started 2 ranks on this machine"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": ""}, ["-n", "1"], "at least 2"),
        ({}, ["--topology", "/"], "a rank can only run on this machine"),
    ],
)
def test_contradictions_are_refused(ompbind, env, args, message):
    done = ompbind("exec", *args, "--", "true", env=env)
    assert done.returncode == 125
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize("local_rank", [0, 1])
def test_warnings_are_printed_once_on_each_machine(ompbind, local_rank):
    env = {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank)}
    done = ompbind("exec", "--allow-partial", "--", "true", env=env)
    assert (done.returncode, "--allow-partial has no effect" in done.stderr) == (0, local_rank == 0)


@pytest.mark.parametrize(
    ("command", "code"), [(["nosuch-command"], 127), (["/etc/passwd"], 126), (["sh", "-c", "exit 9"], 9)]
)
def test_exit_codes(ompbind, command, code):
    assert ompbind("exec", "--", *command).returncode == code


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_a_rank_has_the_cores_and_service_cores_that_it_requests(ompbind, verb):
    first, second = two_cpus()
    show = [sys.executable, "-c", REPORT.replace('"RANK"', '"OMPBIND_CPUS", "OMPBIND_SERVICE_CPUS", "RANK"')]
    alone = read_report(ompbind(verb, "-m", f"{first},{second}", "-c", "1", "--", *show))
    assert (alone["cpus"], alone["OMPBIND_CPUS"], alone["OMPBIND_SERVICE_CPUS"]) == ([first], str(first), "")
    served = read_report(ompbind(verb, "-m", f"{second},{first}", "--service-cores", "1", "--", *show))
    assert served["cpus"] == [first, second]
    assert {served["OMPBIND_CPUS"], served["OMPBIND_SERVICE_CPUS"]} == {str(first), str(second)}
    assert served["OMP_NUM_THREADS"] == "1"
    done = ompbind(verb, "-m", str(first), "-c", "1", "--service-cores", "1", "--", *show)
    assert done.returncode == 125
    assert "1 rank of 1 core and 1 service core needs 2 cores, but 1 is usable" in " ".join(
        done.stderr.split()
    )


def test_inside_a_rank_of_ompbind_it_keeps_the_cpus_of_the_rank(ompbind):
    done = ompbind("run", "-n", "2", "--", "ompbind", "exec", "--", sys.executable, "-c", REPORT)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(report["cpus"] for report in reports) == [[cpu] for cpu in two_cpus()]


OPEN_MPI_ARGS = ("--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self")


@pytest.mark.parametrize(
    ("names", "args"),
    [
        pytest.param(
            ("mpirun.openmpi",), (*OPEN_MPI_ARGS, "--bind-to", "none"), marks=pytest.mark.part("openmpi")
        ),
        pytest.param(
            ("mpirun.openmpi",), (*OPEN_MPI_ARGS, "--bind-to", "core"), marks=pytest.mark.part("openmpi")
        ),
        (("mpiexec.hydra",), ("-bind-to", "none")),
        (("mpiexec.hydra",), ("-bind-to", "core")),
    ],
    ids=["openmpi", "openmpi-bound", "mpich", "mpich-bound"],
)
def test_under_real_launchers(ompbind, names, args):
    launcher = required(*names)
    done = ompbind("exec", "--", sys.executable, "-c", REPORT, before=(launcher, "-n", "2", *args))
    reports = sorted(
        (json.loads(line) for line in done.stdout.splitlines()), key=lambda report: report["RANK"]
    )
    assert [report["cpus"] for report in reports] == [[cpu] for cpu in two_cpus()], done.stderr
    assert [(report["RANK"], report["WORLD_SIZE"]) for report in reports] == [("0", "2"), ("1", "2")]
    assert len({report["OMPBIND_RUN_ID"] for report in reports}) == 1
    assert done.stderr.count("already bound by") == ("core" in args)  # one message for all ranks of a machine


def leave_out_values(line):
    """Return a line about a rank without what depends on the machine."""
    return re.sub(r"node \S+: CPUs? [\d-]+|\d threads?", "", line)


@pytest.mark.parametrize("args", [("-bind-to", "none"), ("-bind-to", "core")], ids=["mpich", "mpich-bound"])
@pytest.mark.parametrize("option", ["-v", "--dry-run"])
def test_each_rank_prints_a_line_about_itself(ompbind, claims, args, option):
    launcher = required("mpiexec.hydra")
    done = ompbind("exec", option, "--", "sleep", "0.1", before=(launcher, "-n", "2", *args))
    assert done.returncode == 0
    lines = done.stdout.splitlines() if option == "--dry-run" else done.stderr.splitlines()
    found = sorted(line.removeprefix("ompbind: ") for line in lines if " of 2 on node " in line)
    node = os.uname().nodename
    assert found == [
        f"rank {rank} of 2 on node {node}: CPU {cpu}, 1 place, 1 thread"
        for rank, cpu in enumerate(two_cpus())
    ]
    shown = re.findall(r"^ompbind: (rank .* on node .*)", (ROOT / "docs/tutorial.md").read_text(), re.M)
    assert [leave_out_values(line) for line in shown] == [leave_out_values(line) for line in found]
    assert done.stderr.count("already bound by") == ("core" in args)
    assert ("OpenMP places" in done.stdout) == (option == "--dry-run"), "one rank prints the plan"
    assert done.stdout.count("OpenMP places") < 2


def test_the_line_about_a_rank_has_its_service_cpus(ompbind):
    first, second = two_cpus()
    options = ("-m", f"{first},{second}", "--service-cores", "1", "--dry-run")
    assert ompbind("exec", *options, "--", "true").stdout.endswith(
        f": CPU {first}, service CPU {second}, 1 place, 1 thread\n"
    )


def test_a_dry_run_starts_and_registers_nothing(ompbind, claims, tmp_path):
    done = ompbind("exec", "--dry-run", "--", "touch", str(tmp_path / "started"))
    assert (done.returncode, os.listdir(tmp_path), os.listdir(claims)) == (0, [], [])
    assert f"rank 0 of 1 on node {os.uname().nodename}: CPUs " in done.stdout


OPEN_MPI_COPIES = ("Open MPI has started 2 copies of 'ompbind run' on this machine", "use 'ompbind exec'")


@pytest.mark.part("openmpi")
@pytest.mark.parametrize(
    ("binding", "inner", "warned"),
    [
        ("none", "run", True),
        ("none", "run -n 2", True),
        ("core", "run", True),
        ("core", "run -n 2", False),
        ("none", "exec -- ompbind run", False),
    ],
)
def test_a_run_that_a_launcher_starts_several_times_is_warned_about(ompbind, binding, inner, warned):
    launcher = (required("mpirun.openmpi"), "-n", "2", *OPEN_MPI_ARGS, "--bind-to", binding)
    done = ompbind(*inner.split(), "--share", "--", "true", before=launcher)
    text = " ".join(done.stderr.split())
    assert (done.returncode, [text.count(part) for part in OPEN_MPI_COPIES]) == (0, [warned] * 2), text


def test_a_run_of_a_launcher_is_warned_about(ompbind):
    launcher = required("mpiexec.hydra")
    done = ompbind("run", "--", launcher, "-n", "2", "true")
    assert f"(use '{Path(launcher).name} -n 2 ompbind exec -- true' instead)" in " ".join(done.stderr.split())
    done = ompbind("run", "--", launcher, "-n", "2", "ompbind", "exec", "--", "true")
    assert "ompbind exec" not in done.stderr


def test_a_mask_of_the_launcher_itself_is_divided_among_ranks(ompbind):
    launcher = required("mpiexec.hydra")
    first, second = two_cpus()
    before = ("taskset", "-c", f"{first},{second}", launcher, "-n", "2")
    done = ompbind("exec", "--", sys.executable, "-c", REPORT, before=before)
    assert sorted(json.loads(line)["cpus"] for line in done.stdout.splitlines()) == [[first], [second]]
