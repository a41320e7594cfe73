"""What launchers and batch systems give: masks of tasks, numbers of CPUs, and what each rank gets of them.

Slurm's lists were printed by tasks of Slurm 22.05; the other variables are from the documentation of each
batch system.
"""

import pytest

from ompbind.commands.environment import RankIdentity
from ompbind.cpuset import CpuSet
from ompbind.launchers.allocation import (
    find_binding,
    read_job_cpus,
    read_job_nodes,
    read_listed_cpus,
    read_task_masks,
)
from tests.launchers.environments import make_env
from tests.live.conftest import write_program
from tests.machines import DictRoot
from tests.tables import rows


@pytest.mark.parametrize(("kind", "text", "masks"), rows("""
    mask_cpu: | 0x0F              | 0-3
    mask_cpu: | 0x5*2,0xA         | 0,2 0,2 1,3
    map_cpu:  | 0,0x3,5*2         | 0 3 5 5
    none      | 0xFFFFFFFFFFFFFFFFFF | 0-71
    mask_cpu: | nonsense          |
    rank:     |                   |
"""))  # fmt: skip
def test_the_masks_of_slurm_are_read_for_each_task(kind, text, masks):
    found = read_task_masks({"SLURM_CPU_BIND_TYPE": kind, "SLURM_CPU_BIND_LIST": text}, "Slurm")
    assert " ".join(map(str, found)) == masks


@pytest.mark.parametrize(("masks", "ranks", "launcher", "shown"), rows("""
    0-3         | 0-3 0-3 0-3 0-3 | 0-15 | 0,1,2,3 0,1,2,3 0,1,2,3 0,1,2,3
    0 1 2 3     | 0 1 2 3         | 0-15 | 0 1 2 3
    0 1         | 0 1 0 1         | 0-15 | 0 1 2 3 overlap
    0-1 1-2     | 0-1 1-2         | 0-15 | 0 1 overlap
    0-1         | 2-3 2-3         | 0-15 | 0 1
                | 0-1 0-1         | 0-1  | 0,1 0,1
                | 0-3 0-3 4-7 4-7 | 0-7  | 0 1 2 3 overlap
                | 0-3 0-3         | ?    | 0,1 0,1
"""))  # fmt: skip
def test_ranks_with_the_same_cpus_divide_them(masks, ranks, launcher, shown):
    """`ranks` are the affinity masks of the ranks; a list that a mask contradicts does not count."""
    listed = [CpuSet.from_list(mask) for mask in masks.split()]
    launcher_cpus = None if launcher == "?" else CpuSet.from_list(launcher)
    size = len(ranks.split())
    found = []
    for rank, allowed in enumerate(ranks.split()):
        identity = RankIdentity(placement_index=rank, rank=rank, size=size, local_rank=rank, local_size=size)
        found.append(find_binding(identity, CpuSet.from_list(allowed), listed, launcher_cpus))
    texts = [",".join(map(str, binding.sharers)) for binding in found]
    texts += ["overlap"] if any(binding.overlaps for binding in found) else []
    assert " ".join(texts) == shown


FILES = {
    "hosts": "n0.site 4 all.q@n0 UNDEFINED\nn1.site 8 all.q@n1 UNDEFINED\nn0.site 2 b.q@n0 UNDEFINED\n",
    "nodes": "n0\nn0\nn1\nn0\n",
    "machine": 'Name = "slot1_2@n0"\nTotalCpus = 64.0\nCpus = 3\nMemory = 512\n',
    "job": 'Cmd = "/bin/app"\nRequestCpus = 2\n',
    "no": "\n# nothing = 1\n",
}


@pytest.mark.parametrize(("variables", "system", "variable", "number"), rows("""
    SLURM_JOB_ID=1 SLURM_CPUS_ON_NODE=4                       | Slurm       | SLURM_CPUS_ON_NODE | 4
    SLURM_JOB_ID=1 SLURM_JOB_CPUS_PER_NODE=4(x2)              |             |                    |
    JOB_ID=7 NSLOTS=4 NHOSTS=1 PE_HOSTFILE=hosts              | SGE | NSLOTS             | 4
    JOB_ID=7 NSLOTS=14 NHOSTS=2 PE_HOSTFILE=hosts             | SGE | PE_HOSTFILE        | 6
    NSLOTS=4                                                  |             |                    |
    PBS_JOBID=1.s NCPUS=8 PBS_NODEFILE=nodes                  | PBS         | NCPUS              | 8
    PBS_JOBID=1.s NCPUS=1 PBS_NODEFILE=nodes                  | PBS         | PBS_NODEFILE       | 3
    PBS_JOBID=1.s PBS_NODEFILE=missing                        |             |                    |
    LSB_JOBID=5 LSB_DJOB_NUMPROC=6                            | LSF         | LSB_DJOB_NUMPROC   | 6
    LSB_JOBID=5 LSB_DJOB_NUMPROC=6 LSB_MCPU_HOSTS='n1 4 n0 2' | LSF         | LSB_MCPU_HOSTS     | 2
    _CONDOR_SLOT=slot1_2 _CONDOR_MACHINE_AD=machine _CONDOR_JOB_AD=job | HTCondor | _CONDOR_MACHINE_AD | 3
    _CONDOR_SLOT=slot1_2 _CONDOR_MACHINE_AD=no _CONDOR_JOB_AD=job      | HTCondor | _CONDOR_JOB_AD     | 2
    _CONDOR_SLOT=slot1_2                                      |             |                    |
    OAR_NODEFILE=nodes                                        | OAR         | OAR_NODEFILE       | 3
"""))  # fmt: skip
def test_batch_systems_say_how_many_cpus_here_a_job_may_use(variables, system, variable, number):
    env = make_env(variables.replace("(", "'(").replace(")", ")'"))
    files = {name: f"/{value}" for name, value in env.items() if value in (*FILES, "missing")}
    found = read_job_cpus({**env, **files}, DictRoot(FILES), "n0.other")
    shown = (found.system, found.variable, str(found.count)) if found else ("", "", "")
    assert shown == (system, variable, number)


@pytest.mark.parametrize(("variables", "nodes"), rows("""
    SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=2                  | Slurm SLURM_JOB_NUM_NODES 2
    SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=1                  |
    SLURM_JOB_NUM_NODES=2                                 |
    JOB_ID=7 NSLOTS=14 NHOSTS=2                           | SGE NHOSTS 2
    PBS_JOBID=1.s PBS_NODEFILE=nodes                      | PBS PBS_NODEFILE 2
    PBS_JOBID=1.s PBS_NODEFILE=nodes PBS_NODENUM=0 PBS_TASKNUM=1 | PBS PBS_NODEFILE 2
    PBS_JOBID=1.s PBS_NODEFILE=nodes PBS_NODENUM=1        |
    PBS_JOBID=1.s PBS_NODEFILE=nodes PBS_NODENUM=0 PBS_TASKNUM=2 |
    PBS_JOBID=1.s PBS_NODEFILE=missing                    |
    LSB_JOBID=5 LSB_MCPU_HOSTS='n1 4 n0 2 n1 1'           | LSF LSB_MCPU_HOSTS 2
    LSB_JOBID=5 LSB_MCPU_HOSTS='n1 4 n0 2' LSF_PM_TASKID=1 |
    LSB_JOBID=5 LSB_MCPU_HOSTS='n1 4'                     |
    OAR_NODEFILE=nodes                                    | OAR OAR_NODEFILE 2
    FLUX_URI=local:///x                                   | Flux flux getattr size 4
    FLUX_URI=local:///x FLUX_JOB_ID=f1                    |
"""))  # fmt: skip
def test_batch_systems_say_how_many_nodes_the_script_of_a_job_has(tmp_path, variables, nodes):
    """A task that the batch system has started on one of the nodes is none of a script."""
    write_program(tmp_path / "flux", '[ "$*" = "getattr size" ] && echo 4')
    env = make_env(variables) | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    files = {name: f"/{value}" for name, value in env.items() if value in (*FILES, "missing")}
    found = read_job_nodes({**env, **files}, DictRoot(FILES), "n0")
    assert (f"{found.system} {found.source} {found.count}" if found else "") == nodes


def test_lsf_lists_the_cpus_of_a_job():
    lists = {"": "", "LSB_BIND_CPU_LIST=0,1,6": "0-1,6", "LSB_BIND_CPU_LIST=some": ""}
    assert {text: str(read_listed_cpus(make_env(f"LSB_JOBID=5 {text}"))) for text in lists} == lists
