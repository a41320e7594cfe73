"""Launchers inside launchers: the innermost one counts; missing and wrong variables are errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.errors import RequestError
from ompbind.launchers.ancestors import Ancestor
from ompbind.launchers.find import find_batch_script, find_launcher
from ompbind.launchers.launchers import LAUNCHERS
from tests.launchers.environments import (
    FLUX,
    FLUX_CRAY,
    INTEL_MPI,
    MPICH,
    OPEN_MPI_4,
    OPEN_MPI_5,
    PALS,
    PRTERUN,
    SLURM_CRAY,
    SLURM_HETEROGENEOUS,
    SLURM_INTERACTIVE,
    SLURM_PMI,
    SLURM_PMIX,
    SLURM_SCRIPT,
    SLURM_SHELL,
    SLURM_STEP,
    SLURM_UNEVEN,
    TORCHRUN,
)

RUN = {"OMPBIND_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
"""A rank of `ompbind run -n 2`."""


def ancestors(*names):
    """Processes with these names, the parent first."""
    return [Ancestor(pid=100 - number, name=name) for number, name in enumerate(names)]


@pytest.mark.parametrize(
    ("env", "launcher", "numbers"),
    [
        (OPEN_MPI_4, "Open MPI", (1, 3, 1, 3)),
        (OPEN_MPI_5, "Open MPI", (1, 3, 1, 3)),
        (MPICH, "MPICH or Intel MPI", (1, 3, 1, 3)),
        (INTEL_MPI, "MPICH or Intel MPI", (1, 3, 1, 3)),
        (SLURM_STEP, "Slurm", (1, 3, 1, 3)),
        (SLURM_UNEVEN, "Slurm", (2, 3, 0, 1)),
        (SLURM_HETEROGENEOUS, "Slurm", (2, 3, 1, 2)),
        ({name: SLURM_STEP[name] for name in SLURM_STEP if "PER_NODE" not in name}, "Slurm", (1, 3, 1, 3)),
        ({name: SLURM_UNEVEN[name] for name in SLURM_UNEVEN if name != "SLURM_GTIDS"}, "Slurm", (2, 3, 0, 1)),
        ({**SLURM_STEP, **SLURM_PMI}, "Slurm", (1, 3, 1, 3)),
        ({**SLURM_STEP, **SLURM_PMIX}, "Slurm", (1, 3, 1, 3)),
        ({**SLURM_STEP, **SLURM_CRAY}, "Slurm", (1, 3, 1, 3)),
        (FLUX, "Flux", (1, 3, 1, 3)),
        ({**FLUX, **FLUX_CRAY}, "Flux", (1, 3, 1, 3)),
        (PALS, "PALS", (1, 3, 1, 3)),
        ({name: value for name, value in PALS.items() if name != "PALS_LOCAL_SIZE"}, "PALS", (1, 3, 1, 3)),
        (TORCHRUN, "torchrun", (1, 3, 1, 3)),
    ],
)  # fmt: skip
def test_a_rank_is_found_in_the_variables_of_its_launcher(env, launcher, numbers):
    known = next(known for known in LAUNCHERS if known.name == launcher)
    rank = find_launcher(env, ancestors("sh", known.daemons[0]))
    identity = rank.identity
    assert rank.launcher == launcher
    assert (identity.rank, identity.size, identity.local_rank, identity.local_size) == numbers


OUTER = {**SLURM_STEP, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1", "SLURM_GTIDS": "0"}
"""The step of one task in which a launcher or a daemon of it was started."""

BY_HAND = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "3"}
"""Variables that users set for PyTorch, as `export RANK=$SLURM_PROCID`."""


@pytest.mark.parametrize(
    ("env", "processes", "launcher"),
    [
        ({**OUTER, **TORCHRUN}, ("pt_elastic", "slurmstepd"), "torchrun"),
        ({**OPEN_MPI_4, **TORCHRUN}, ("pt_elastic", "sh", "mpirun"), "torchrun"),
        ({**OUTER, **TORCHRUN}, ("python3", "slurmstepd"), "torchrun"),  # python -m torch.distributed.run
        ({**TORCHRUN, **SLURM_STEP}, ("slurmstepd",), "Slurm"),  # srun in a worker of torchrun
        ({**SLURM_STEP, **BY_HAND}, ("bash", "slurmstepd"), "Slurm"),
        ({**OUTER, **OPEN_MPI_5}, ("prted", "slurmstepd"), "Open MPI"),
        ({**SLURM_SCRIPT, **OPEN_MPI_4}, ("mpirun.openmpi", "slurm_script", "slurmstepd"), "Open MPI"),
        ({**OUTER, **MPICH}, ("hydra_pmi_proxy", "slurmstepd"), "MPICH or Intel MPI"),
        ({**PALS, **MPICH}, ("hydra_pmi_proxy", "palsd"), "MPICH or Intel MPI"),
        ({**FLUX, **SLURM_STEP}, ("slurmstepd",), "Slurm"),
        ({**OUTER, **FLUX}, ("flux-shell", "flux-broker-0", "slurmstepd"), "Flux"),
        ({**OPEN_MPI_4, **SLURM_STEP}, ("sh", "slurmstepd"), "Slurm"),
        ({**OPEN_MPI_4, **MPICH}, ("hydra_pmi_proxy", "mpiexec.hydra", "mpirun"), "MPICH or Intel MPI"),
        ({**MPICH, **OPEN_MPI_4}, ("mpirun", "hydra_pmi_proxy"), "Open MPI"),
    ],
)
def test_the_innermost_launcher_is_the_one_whose_process_is_nearest(env, processes, launcher):
    assert find_launcher(env, ancestors(*processes)).launcher == launcher


@pytest.mark.parametrize(
    ("env", "launcher"),
    [
        ({**OUTER, **OPEN_MPI_5, **TORCHRUN}, "torchrun"),
        ({**OUTER, **OPEN_MPI_5}, "Open MPI"),
        ({**OUTER, **FLUX, **MPICH}, "MPICH or Intel MPI"),
        ({**OUTER, **FLUX}, "Flux"),
        ({**SLURM_STEP, **BY_HAND}, "Slurm"),
        (BY_HAND, "torchrun"),
        ({**SLURM_STEP, **SLURM_CRAY}, "PALS"),  # both describe the same rank
    ],
)
def test_where_processes_are_hidden_launchers_are_nested_as_usual(env, launcher):
    assert find_launcher(env, ancestors("sh", "containerd-shim")).launcher == launcher


@pytest.mark.parametrize(
    ("env", "processes", "script"),
    [
        (SLURM_SCRIPT, ("slurm_script", "slurmstepd"), "Slurm"),
        ({**SLURM_SCRIPT, **OPEN_MPI_4}, ("slurm_script", "slurmstepd"), "Slurm"),  # sbatch in a rank
        (SLURM_SHELL, ("bash", "salloc"), ""),
        (SLURM_INTERACTIVE, ("bash", "slurmstepd"), "Slurm"),
        ({**OPEN_MPI_4, **RUN}, ("rank-supervisor", "ompbind", "mpirun"), ""),
        (RUN, ("rank-supervisor", "ompbind"), ""),
        (
            {**TORCHRUN, **RUN},
            ("rank-supervisor", "ompbind", "python3"),
            "",
        ),  # python -m torch.distributed.run
        ({}, (), ""),
    ],
)
def test_scripts_of_jobs_and_ranks_of_run_are_no_ranks_of_a_launcher(env, processes, script):
    assert find_launcher(env, ancestors(*processes)) is None
    found = find_batch_script(env, ancestors(*processes))
    assert (found.name if found else "") == script


@pytest.mark.parametrize("rank", ["0", "1"])
def test_torchrun_in_a_rank_of_run_has_ranks_of_its_own(rank):
    env = {**RUN, "OMPBIND_RANK": "0", **TORCHRUN, "RANK": rank, "LOCAL_RANK": rank}
    found = find_launcher(env, ancestors("pt_elastic", "rank-supervisor", "ompbind"))
    assert (found.launcher, found.identity.local_rank) == ("torchrun", int(rank))


def test_a_launcher_in_a_rank_of_run_has_ranks_of_its_own():
    found = find_launcher({**RUN, **OPEN_MPI_4}, ancestors("mpirun", "rank-supervisor", "ompbind"))
    assert (found.launcher, found.identity.rank) == ("Open MPI", 1)


@pytest.mark.parametrize(
    ("env", "given", "missing"),
    [
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1"}, "OMPI_COMM_WORLD_LOCAL_RANK is set, as Open MPI does",
         "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are not"),
        ({"RANK": "3", "WORLD_SIZE": "8"}, "RANK and WORLD_SIZE are set, as torchrun does",
         "LOCAL_RANK is not"),
        (SLURM_PMI, "PMI_RANK and PMI_SIZE are set, as MPICH or Intel MPI does", "MPI_LOCALRANKID is not"),
        (PRTERUN, "PMIX_RANK is set, as PRRTE does", "PRRTE sets no local rank"),
        ({"SLURM_LOCALID": "1"}, "SLURM_LOCALID is set, as Slurm does",
         "SLURM_STEP_ID, SLURM_PROCID and SLURM_NTASKS are not"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set, as torchrun does", "RANK and LOCAL_RANK are not"),
        ({**SLURM_SCRIPT, "OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE is set, as Open MPI does",
         "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_LOCAL_RANK are not"),
        ({**FLUX_CRAY, "PMI_RANK": ""}, "PALS_RANKID and PMI_SIZE are set", "PALS_LOCAL_RANKID is not"),
        ({**FLUX, "FLUX_JOB_SIZE": ""}, "FLUX_TASK_RANK and FLUX_TASK_LOCAL_ID are set",
         "FLUX_JOB_SIZE is not"),
        ({**SLURM_SCRIPT, "OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_RANK is set",
         "OMPI_COMM_WORLD_SIZE and OMPI_COMM_WORLD_LOCAL_RANK are not"),
    ],
)  # fmt: skip
def test_variables_that_are_missing_are_named(env, given, missing):
    with pytest.raises(RequestError) as raised:
        find_launcher(env)
    assert given in raised.value.message
    assert missing in raised.value.message
    assert "--local-rank" in raised.value.hint


@pytest.mark.parametrize(
    ("env", "texts"),
    [
        ({**OPEN_MPI_4, "OMPI_COMM_WORLD_RANK": "3"}, ("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=3")),
        ({**OPEN_MPI_4, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
         ("OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=1")),
        ({**MPICH, "MPI_LOCALNRANKS": "4"}, ("MPI_LOCALNRANKS=4", "PMI_SIZE=3")),
        ({**SLURM_STEP, "SLURM_PROCID": "7"}, ("SLURM_PROCID=7", "SLURM_GTIDS=0,1,2")),
        ({**SLURM_STEP, "SLURM_LOCALID": "3"}, ("SLURM_LOCALID=3", "the number of ranks on this machine=3")),
        ({**TORCHRUN, "LOCAL_RANK": "one"}, ("LOCAL_RANK='one'",)),
    ],
)  # fmt: skip
def test_variables_that_contradict_each_other_are_named(env, texts):
    with pytest.raises(RequestError) as raised:
        find_launcher(env)
    assert [text for text in texts if text not in raised.value.message] == []


def test_variables_that_are_not_used_are_listed():
    env = {**OUTER, **SLURM_PMIX, **SLURM_PMI, **TORCHRUN}
    assert find_launcher(env, ancestors("pt_elastic", "slurmstepd")).unused == (
        "variables of MPICH or Intel MPI are not used: MPI_LOCALRANKID is not set",
        "variables of Slurm are not used: torchrun is the innermost launcher",
    )
    assert find_launcher(TORCHRUN, ()).unused == ()


def test_the_process_of_the_launcher_identifies_a_job_without_an_identifier():
    """A shell between the launcher and the rank is another process for each rank."""
    for parent in (7, 8):
        processes = (Ancestor(pid=parent, name="sh"), Ancestor(pid=5, name="hydra_pmi_proxy"))
        assert find_launcher(MPICH, processes).run_id == "mpich-5"
    assert find_launcher(MPICH, (Ancestor(pid=7, name="sh"),)).run_id == "mpich-7"
    assert find_launcher({**MPICH, "PMI_JOBID": "a/b"}).run_id == "mpich-a_b"


ENVIRONMENTS = {
    "torchrun": TORCHRUN,
    "Open MPI": OPEN_MPI_5,
    "MPICH or Intel MPI": MPICH,
    "PALS": PALS,
    "Flux": FLUX,
    "Slurm": SLURM_STEP,
}


@given(st.sampled_from(sorted(ENVIRONMENTS)), st.data())
def test_some_variables_of_a_rank_are_never_taken_for_no_rank(name, data):
    """Without some of its variables, a rank is an error: only without all of them, it is none."""
    env = ENVIRONMENTS[name]
    launcher = next(known for known in LAUNCHERS if known.name == name)
    removed = data.draw(st.sets(st.sampled_from(launcher.needed)))
    env = {name: value for name, value in env.items() if name not in removed and not name.startswith("PMIX")}
    if name == "PALS":
        env.pop("PMI_RANK")  # of MPICH too
    has_some = launcher.rank in env or launcher.local_rank in env or launcher.has_size(env)
    if not removed:
        assert find_launcher(env).launcher == name
    elif not has_some or launcher.is_script(env):
        assert find_launcher(env) is None
    else:
        with pytest.raises(RequestError, match=" not set$"):
            find_launcher(env)
