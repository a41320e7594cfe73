"""Launchers: the rank in their variables, and a launcher that is added; live/test_exec.py runs them."""

import os

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.launchers.launcher import may_have_launcher
from ompbind.launchers.table import LAUNCHERS, find_batch_script, find_copies, find_launcher
from tests.toys import run_with

SCRIPT = {"SLURM_PROCID": "9", "SLURM_LOCALID": "0", "SLURM_NTASKS": "40"}
SLURM = {**SCRIPT, "SLURM_STEP_ID": "0"}
FLUX = {"FLUX_TASK_RANK": "1", "FLUX_TASK_LOCAL_ID": "1", "FLUX_JOB_SIZE": "4"}


@pytest.mark.parametrize(
    ("env", "local_size"),
    [
        ({**SLURM, "SLURM_TASKS_PER_NODE": "4"}, 4),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "1"}, 4),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2"}, 3),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "3"}, 0),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "4", "SLURM_STEP_TASKS_PER_NODE": "2"}, 2),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "1(x999999999999)"}, 1),
        (SLURM, 0),
        ({**FLUX, "FLUX_JOB_NNODES": "2"}, 2),
        ({**FLUX, "FLUX_JOB_NNODES": "3"}, 0),
        ({**FLUX, "FLUX_JOB_NNODES": "0"}, 0),
    ],
)
def test_the_number_of_local_ranks_is_read_if_the_launcher_sets_it(env, local_size):
    assert find_launcher(env, 1).identity.local_size == local_size


def test_a_launcher_needs_its_rank_and_its_local_rank():
    assert find_launcher({}, 1) is None
    for launcher in LAUNCHERS:
        assert find_launcher({launcher.rank: "0"}, 1) is None
        step = {launcher.step: "0"} if launcher.step else {}
        with pytest.raises(RequestError, match=launcher.size):
            find_launcher({launcher.rank: "0", launcher.local_rank: "0", **step}, 1)


@pytest.mark.parametrize(
    ("env", "script", "launcher"),
    [
        ({**SCRIPT, "SLURM_TASKS_PER_NODE": "4"}, "Slurm", ""),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "4"}, "", "Slurm"),
        ({**SCRIPT, **FLUX, "FLUX_JOB_NNODES": "2"}, "", "Flux"),
        ({**FLUX, "FLUX_JOB_NNODES": "2"}, "", "Flux"),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, "", ""),  # in the shell of salloc
        ({}, "", ""),
    ],
)
def test_the_script_of_a_batch_job_is_no_rank(env, script, launcher):
    found, rank = find_batch_script(env, 1), find_launcher(env, 1)
    assert (found.name if found else "", rank.launcher if rank else "") == (script, launcher)


def test_the_parent_identifies_a_job_without_an_identifier():
    env = {"PMI_RANK": "0", "PMI_SIZE": "1", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
    assert find_launcher(env, 77).run_id == "mpich-77"
    assert find_launcher({**env, "PMI_JOBID": "a/b"}, 77).run_id == "mpich-a_b"


EVERYTHING = CpuSet(os.sched_getaffinity(0))
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}  # fmt: skip
BATCH = {**SCRIPT, "SLURM_TASKS_PER_NODE": "4"}


@pytest.mark.parametrize(
    ("env", "launcher"),
    [
        (OPEN_MPI, "Open MPI"),
        ({**BATCH, "SLURM_STEP_ID": "0"}, "Slurm"),
        (BATCH, ""),
        ({**BATCH, **OPEN_MPI}, "Open MPI"),
        ({**OPEN_MPI, "OMPBIND_RANK": "0"}, ""),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, ""),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "9"}, ""),
        ({}, ""),
    ],
    ids=["mpirun", "srun", "batch", "mpirun in batch", "inside", "one per node", "wrong", "none"],
)
def test_several_copies_of_one_command_are_found(env, launcher):
    found = find_copies(env, os.getpid())
    assert (found.launcher if found else "") == launcher
    assert may_have_launcher(env) or not found


TOY = """
from ompbind.launchers import table
from ompbind.launchers.launcher import Launcher
PALS = Launcher(
    name="PALS",
    rank="PALS_RANKID",
    size="PALS_SIZE",
    local_rank="PALS_LOCAL_RANKID",
    local_size=lambda env: len(env["PALS_HOST_RANKS"].split(":")),
    run_id=("PALS_APID",),
    daemons=("palsd",),
    example=("Four ranks of PALS", "aprun -n 4 ompbind exec -- ./app"),
)
table.LAUNCHERS = (PALS, *table.LAUNCHERS)
"""


def test_a_launcher_is_one_file_and_one_row():
    text = run_with(TOY, "exec", "--help")
    assert "that a launcher started: PALS, Open MPI, MPICH, Flux, torchrun, Slurm." in text
    assert "aprun -n 4 ompbind exec -- ./app Four ranks of PALS" in text
    assert "or use one of PALS, Open MPI," in run_with(TOY, "exec", "-n", "2", "--", "true")
    env = {
        "PALS_RANKID": "5",
        "PALS_SIZE": "6",
        "PALS_LOCAL_RANKID": "0",
        "PALS_HOST_RANKS": "5",
        "PALS_APID": "x",
    }
    show = ("exec", "--", "sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $OMPBIND_RUN_ID")
    assert run_with(TOY, *show, **env) == "5 6 0 1 pals-x"
