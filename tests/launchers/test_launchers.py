"""Launchers: the rank in their variables, and launchers inside launchers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.commands.environment import RankIdentity
from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.launchers import find
from ompbind.launchers.allocation import find_binding
from ompbind.launchers.find import Ancestor, find_copies, find_launcher, read_local_rank
from ompbind.launchers.launchers import LAUNCHERS, may_have_launcher
from tests.elves import put
from tests.launchers import environments
from tests.machines import DictRoot
from tests.tables import rows

SETS = {
    **vars(environments),
    "TASKS": environments.make_env("SLURM_PROCID=9 SLURM_LOCALID=0 SLURM_NTASKS=40 SLURM_STEP_ID=0"),
    "OUTER": environments.SLURM_STEP
    | environments.make_env("PROCID=0 LOCALID=0 NTASKS=1 GTIDS=0", "SLURM_"),  # of a nested launcher
    "BY_HAND": environments.make_env("RANK=1 LOCAL_RANK=1 WORLD_SIZE=3"),  # `export RANK=$SLURM_PROCID`
    "RUN": environments.make_env("OMPBIND_RANK=1 RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2"),
}
"""Environments by name; RUN is a rank of `ompbind run -n 2`."""


def env(text):
    """Make an environment from words: the name of an environment, NAME=VALUE, or ^PART of removed names."""
    made = {}
    for word in text.split():
        if word.startswith("^"):
            made = {name: value for name, value in made.items() if word[1:] not in name}
        else:
            made |= environments.make_env(word) if "=" in word else SETS[word]
    return made


def ancestors(names):
    return [Ancestor(pid=100 - number, name=name) for number, name in enumerate(names.split())]


@pytest.mark.parametrize(("words", "launcher", "numbers"), rows("""
    OPEN_MPI_4                        | Open MPI           | 1 3 1 3
    MPICH                             | MPICH or Intel MPI | 1 3 1 3
    SLURM_STEP                        | Slurm              | 1 3 1 3
    SLURM_UNEVEN                      | Slurm              | 2 3 0 1
    SLURM_UNEVEN ^SLURM_GTIDS         | Slurm              | 2 3 0 1
    SLURM_STEP SLURM_CRAY             | Slurm              | 1 3 1 3
    FLUX                              | Flux               | 1 3 1 3
    FLUX FLUX_CRAY                    | Flux               | 1 3 1 3
    PALS                              | PALS               | 1 3 1 3
    PALS ^PALS_LOCAL_SIZE             | PALS               | 1 3 1 3
    TORCHRUN                          | torchrun           | 1 3 1 3
    MVAPICH2                          | MVAPICH2           | 1 3 1 3
    HOROVOD                           | Horovod            | 1 3 1 3
    DEEPSPEED                         | DeepSpeed          | 1 3 1 3
    RUN OMPBIND_RANK=1 DEEPSPEED      | DeepSpeed          | 1 3 1 3
    JSM                               | JSM                | 1 3 1 3
    TASKS                                                       | Slurm | 9 40 0 0
    TASKS SLURM_TASKS_PER_NODE=4(x2),3 SLURM_NODEID=2           | Slurm | 9 40 0 3
    TASKS SLURM_TASKS_PER_NODE=4 SLURM_STEP_TASKS_PER_NODE=2    | Slurm | 9 40 0 2
    TASKS SLURM_TASKS_PER_NODE=1(x999999999999)                 | Slurm | 9 40 0 1
"""))  # fmt: skip
def test_a_rank_is_found_in_the_variables_of_its_launcher(words, launcher, numbers):
    known = next(known for known in LAUNCHERS if known.name == launcher)
    found = env(words.replace("(", "'(").replace(")", ")'"))
    rank = find_launcher(found, ancestors(f"sh {known.daemons[0]}"))
    identity = rank.identity
    assert rank.launcher == launcher
    found = (identity.rank, identity.size, identity.local_rank, identity.local_size)
    assert " ".join(map(str, found)) == numbers


@pytest.mark.parametrize(("variables", "taskmap", "local_size"), rows("""
    FLUX_JOB_SIZE=3 FLUX_JOB_NNODES=1                                         |           | 3
    FLUX_JOB_SIZE=3 FLUX_JOB_NNODES=2                                         | 0-1;2     | 2
    FLUX_JOB_SIZE=3 FLUX_JOB_NNODES=2 FLUX_TASK_RANK=2 FLUX_TASK_LOCAL_ID=0   | 0-1;2     | 1
    FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=2                                         | fails     | 2
    FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=2                                         | [[0,2,2,1]] | 2
    FLUX_JOB_SIZE=3 FLUX_JOB_NNODES=2                                         | 0;2       | 0
"""))  # fmt: skip
def test_flux_is_asked_only_where_its_variables_do_not_suffice(tmp_path, variables, taskmap, local_size):
    asked = tmp_path / "asked"
    script = f'#!/bin/sh\necho "$@" >{asked}\n'
    script += "exit 1\n" if taskmap == "fails" else f"echo '{taskmap}'\n"
    put(tmp_path / "flux", script)
    rank = find_launcher({**env(f"FLUX {variables}"), "PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert rank.identity.local_size == int(local_size)
    question = asked.read_text() if asked.exists() else ""
    assert question == ("job taskmap --to=raw 86872427233280\n" if taskmap else "")


@pytest.mark.parametrize(("words", "processes", "launcher"), rows("""
    OUTER TORCHRUN          | pt_elastic slurmstepd                  | torchrun
    OPEN_MPI_4 TORCHRUN     | pt_elastic sh mpirun                   | torchrun
    OUTER TORCHRUN          | python3 slurmstepd                     | torchrun
    TORCHRUN SLURM_STEP     | slurmstepd                             | Slurm
    SLURM_SCRIPT OPEN_MPI_4 | mpirun.openmpi slurm_script slurmstepd | Open MPI
    OUTER OPEN_MPI_5 TORCHRUN | sh containerd-shim                   | torchrun
    SLURM_STEP BY_HAND      | sh containerd-shim                     | Slurm
    BY_HAND                 | sh containerd-shim                     | torchrun
    SLURM_STEP SLURM_CRAY   | sh containerd-shim                     | PALS
    OUTER DEEPSPEED         | python3 deepspeed slurmstepd           | DeepSpeed
    OUTER HOROVOD           | sh containerd-shim                     | Horovod
    RUN OPEN_MPI_4          | mpirun rank-supervisor ompbind         | Open MPI
    RUN OMPBIND_RANK=0 TORCHRUN RANK=0 LOCAL_RANK=0 | pt_elastic rank-supervisor ompbind | torchrun
    SLURM_SCRIPT OPEN_MPI_4 | slurm_script slurmstepd              | script of Slurm
    SLURM_INTERACTIVE       | bash slurmstepd                      | script of Slurm
    RUN OPEN_MPI_4          | rank-supervisor ompbind mpirun       |
    TORCHRUN RUN            | rank-supervisor ompbind python3      |
                            |                                      |
"""))  # fmt: skip
def test_the_innermost_launcher_is_the_one_whose_process_is_nearest(words, processes, launcher):
    """Where processes are hidden, launchers are nested as usual. Scripts and ranks of run are none."""
    rank = find_launcher(env(words), ancestors(processes))
    script = find.find_batch_script(env(words), ancestors(processes))
    texts = ([rank.launcher] if rank else []) + ([f"script of {script.name}"] if script else [])
    assert " ".join(texts) == launcher


@pytest.mark.parametrize(("words", "given", "missing"), rows("""
    OMPI_COMM_WORLD_LOCAL_RANK=1        | OMPI_COMM_WORLD_LOCAL_RANK        | OMPI_COMM_WORLD_RANK and OMPI_C
    SLURM_PMI                           | PMI_RANK and PMI_SIZE             | MPI_LOCALRANKID is not set
    PRTERUN                             | PMIX_RANK is set, as PRRTE does   | PRRTE sets no local rank
    SLURM_SCRIPT OMPI_COMM_WORLD_RANK=0 | OMPI_COMM_WORLD_RANK              | OMPI_COMM_WORLD_SIZE
    OPEN_MPI_4 OMPI_COMM_WORLD_RANK=3   | OMPI_COMM_WORLD_RANK=3            | OMPI_COMM_WORLD_SIZE=3
    OPEN_MPI_4 OMPI_COMM_WORLD_LOCAL_SIZE=1 | OMPI_COMM_WORLD_LOCAL_RANK=1  | OMPI_COMM_WORLD_LOCAL_SIZE=1
    SLURM_STEP SLURM_PROCID=7           | SLURM_PROCID=7                    | SLURM_GTIDS=0,1,2
    TORCHRUN LOCAL_RANK=one             | LOCAL_RANK='one'                  | LOCAL_RANK
"""))  # fmt: skip
def test_variables_that_are_missing_or_contradict_each_other_are_named(words, given, missing):
    with pytest.raises(RequestError) as raised:
        find_launcher(env(words))
    assert given in raised.value.message
    assert missing in raised.value.message
    assert find_copies(env(words)) is None


def test_the_process_of_the_launcher_identifies_a_job_without_an_identifier():
    """A shell between the launcher and the rank is another process for each rank."""
    for parent in (7, 8):
        processes = (Ancestor(pid=parent, name="sh"), Ancestor(pid=5, name="hydra_pmi_proxy"))
        assert find_launcher(env("MPICH"), processes).run_id == "mpich-5"
    assert find_launcher(env("MPICH"), (Ancestor(pid=7, name="sh"),)).run_id == "mpich-7"
    assert find_launcher(env("MPICH PMI_JOBID=a/b")).run_id == "mpich-a_b"


def test_one_rank_of_a_machine_is_the_first_for_messages():
    ranks = {"HOME=/": 0, "OPEN_MPI_4": 1, "OPEN_MPI_4 OMPI_COMM_WORLD_LOCAL_RANK=0 LOCAL_RANK=7": 0,
             "OUTER TORCHRUN LOCAL_RANK=2": 2, "LOCAL_RANK=2": 2}  # fmt: skip
    assert {words: read_local_rank(env(words)) for words in ranks} == ranks


ENVIRONMENTS = {
    "torchrun": "TORCHRUN", "Open MPI": "OPEN_MPI_5", "MPICH or Intel MPI": "MPICH", "PALS": "PALS",
    "Flux": "FLUX", "Horovod": "HOROVOD", "Slurm": "SLURM_STEP",
}  # fmt: skip


@given(st.sampled_from(sorted(ENVIRONMENTS)), st.data())
def test_some_variables_of_a_rank_are_never_taken_for_no_rank(name, data):
    """Without some of its variables, a rank is an error: only without all of them, it is none."""
    launcher = next(known for known in LAUNCHERS if known.name == name)
    removed = data.draw(st.sets(st.sampled_from(launcher.needed)))
    given = env(f"{ENVIRONMENTS[name]} ^PMIX" + " ^PMI_RANK" * (name == "PALS"))  # PMI_RANK is of MPICH too
    given = {name: value for name, value in given.items() if name not in removed}
    if not removed:
        assert find_launcher(given).launcher == name
        return
    marks = {launcher.rank, launcher.local_rank, *(() if launcher.step else (launcher.size,))}
    if marks.isdisjoint(given) or launcher.is_script(given):
        assert find_launcher(given) is None
    else:
        with pytest.raises(RequestError, match=" not set$"):
            find_launcher(given)


@pytest.mark.parametrize(("words", "launcher"), rows("""
    OPEN_MPI_5                              | Open MPI
    SLURM_SCRIPT                            |
    SLURM_SCRIPT OPEN_MPI_5                 | Open MPI
    OPEN_MPI_5 OMPBIND_RANK=0               |
    OPEN_MPI_5 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 |
                                            |
"""))  # fmt: skip
def test_several_copies_of_one_command_are_found(words, launcher):
    found = find_copies(env(words))
    assert (found.launcher if found else "") == launcher
    assert may_have_launcher(env(words)) or not found


@pytest.mark.parametrize(("processes", "daemons", "bound", "cpuset"), rows("""
    slurmstepd:0-7 ompbind:0-1                | slurmstepd | yes |
    slurmstepd:0-7 ompbind:0-7                | slurmstepd |     |
    slurmstepd:0-7 pt_elastic:0-3 ompbind:0-3 | pt_elastic |     |
    slurmstepd:0-7 python3:0-3 ompbind:0-3    | pt_elastic |     |
    bash:0-7 ompbind:2                        |            | yes |
    containerd-shim:none ompbind:0-1          | slurmstepd |     |
    ompbind:0-1                               | slurmstepd |     |
    slurmstepd:0-7 ompbind:0-3                | slurmstepd |     | 0-3
    slurmstepd:0-7 ompbind:0-1                | slurmstepd | yes | 0-3
"""))  # fmt: skip
def test_a_rank_is_bound_if_it_has_fewer_cpus_than_its_own_launcher(processes, daemons, bound, cpuset):
    """A torchrun that srun has bound has not bound its ranks. CPUs outside the cpuset do not count."""
    chain = [process.split(":") for process in ("init:0-7", *processes.split())]
    files = {f"proc/{pid}/status": f"Name:\t{name}\nPPid:\t{pid - 1}\nCpus_allowed_list:\t{cpus}\n"
             for pid, (name, cpus) in enumerate(chain, 1)}  # fmt: skip
    if cpuset:
        files |= {"proc/mounts": "cgroup2 /cg cgroup2 rw 0 0\n", "proc/self/cgroup": "0::/\n",
                  "cg/cpuset.cpus.effective": f"{cpuset}\n"}  # fmt: skip
    root = DictRoot(files)
    found = tuple(find.read_ancestors(root, len(chain)))
    assert [ancestor.name for ancestor in found] == [name for name, _ in chain[-2:0:-1]]
    allowed = CpuSet.from_list(chain[-1][1])
    identity = RankIdentity(placement_index=0, rank=0, size=2, local_rank=0, local_size=2)
    launcher_cpus = find.read_launcher_cpus(find.find_starter(found, daemons.split()), root)
    sharers = find_binding(identity, allowed, (), launcher_cpus).sharers
    assert (sharers == (0,)) == bool(bound)
