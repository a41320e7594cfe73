"""Launchers: the rank in their variables, and a launcher that is added; live/test_exec.py runs them."""

import pytest

from ompbind.errors import RequestError
from ompbind.launchers.find import find_batch_script, find_copies, find_launcher
from ompbind.launchers.launchers import LAUNCHERS, may_have_launcher, may_have_variables
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
        ({**FLUX, "FLUX_JOB_NNODES": "2", "FLUX_TASK_LOCAL_ID": "2"}, 0),  # 3 and 1 tasks
    ],
)
def test_the_number_of_local_ranks_is_read_if_the_launcher_sets_it(env, local_size):
    assert find_launcher(env).identity.local_size == local_size


def test_a_launcher_needs_all_its_variables():
    assert find_launcher({}) is None
    for launcher in LAUNCHERS:
        needed = dict.fromkeys(launcher.needed, "1")
        for name in (launcher.rank, launcher.size, launcher.local_rank) if launcher.local_rank else ():
            with pytest.raises(RequestError, match=f"{name}.* not set$"):
                find_launcher({**needed, name: ""})


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
    found, rank = find_batch_script(env), find_launcher(env)
    assert (found.name if found else "", rank.launcher if rank else "") == (script, launcher)


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
    found = find_copies(env)
    assert (found.launcher if found else "") == launcher
    assert may_have_launcher(env) or not found


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda launcher: launcher.name)
def test_each_variable_of_a_rank_is_recognized_by_its_name(launcher):
    names = filter(None, (launcher.rank, launcher.size, launcher.local_rank))
    assert all(may_have_variables({name: "1"}) for name in names)
    for changes in ({"rank": "JSM_NUMBER"}, {"size": "JSM_COUNT"}, {"local_rank": "JSM_RANK"}):
        with pytest.raises(ValueError, match="has no"):
            launcher.replace(**changes)


TOY = """
from ompbind.launchers import launchers
from ompbind.launchers.launchers import Launcher
JSM = Launcher(
    name="JSM",
    rank="JSM_RANK",
    size="JSM_SIZE",
    local_rank="JSM_LOCAL_RANK",
    local_size=lambda env: len(env["JSM_HOST_RANKS"].split(":")),
    run_id=("JSM_JOB",),
    daemons=("jsmd",),
    example=("Four ranks of JSM", "jsrun -n 4 ompbind exec -- ./app"),
)
launchers.LAUNCHERS = (JSM, *launchers.LAUNCHERS)
"""


def test_a_launcher_is_one_row():
    text = run_with(TOY, "exec", "--help")
    assert "that a launcher started: JSM, torchrun, Open MPI, MPICH or Intel MPI, PALS, Flux, Slurm." in text
    assert "jsrun -n 4 ompbind exec -- ./app Four ranks of JSM" in text
    assert "or use one of JSM, torchrun," in run_with(TOY, "exec", "-n", "2", "--", "true")
    env = {
        "JSM_RANK": "5",
        "JSM_SIZE": "6",
        "JSM_LOCAL_RANK": "0",
        "JSM_HOST_RANKS": "5",
        "JSM_JOB": "x",
    }
    show = ("exec", "--", "sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $OMPBIND_RUN_ID")
    assert run_with(TOY, *show, **env) == "5 6 0 1 jsm-x"
