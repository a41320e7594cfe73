"""What each rank of a node gets: environments of launchers × masks × machines, as `exec --dry-run` says.

Every row: the machine, the variables that all ranks have, and the CPUs of each rank, then its threads.
"""

import os
import re
import sys

import pytest

from ompbind.cpuset import CpuSet
from tests.cli.command_lines import call
from tests.launchers.environments import make_env
from tests.live.conftest import one_line, required, two_cpus
from tests.live.test_exec import launcher_words
from tests.tables import rows

MACHINES = {
    "flat": "synthetic:pack:2 core:4 pu:1",  # CPUs 0-3 and 4-7
    "smt": "synthetic:pack:2 core:4 pu:2",  # CPUs 0-7 and 8-15, siblings are adjacent
}
SLURM = "STEP_ID=0 JOB_ID=1 PROCID={0} LOCALID={0} NTASKS={1} STEP_TASKS_PER_NODE={1} "
SLURM += "CPU_BIND_TYPE=mask_cpu: {2}"
OTHERS = {
    "mpi": "OMPI_COMM_WORLD_RANK={0} OMPI_COMM_WORLD_SIZE={1} OMPI_COMM_WORLD_LOCAL_RANK={0} "
    "OMPI_COMM_WORLD_LOCAL_SIZE={1} {2}",
    "flux": "FLUX_TASK_RANK={0} FLUX_JOB_SIZE={1} FLUX_JOB_NNODES=1 FLUX_TASK_LOCAL_ID={0} FLUX_JOB_ID=1 {2}",
    "torchrun": "RANK={0} WORLD_SIZE={1} LOCAL_RANK={0} LOCAL_WORLD_SIZE={1} TORCHELASTIC_RUN_ID=1 {2}",
}


@pytest.mark.parametrize(("machine", "launcher", "variables", "ranks"), rows("""
    flat | slurm    |                                   | 0-1:2 2-3:2 4-5:2 6-7:2
    flat | slurm    | CPU_BIND_LIST=0x0F                | 0:1 1:1 2:1 3:1
    flat | slurm    | CPU_BIND_LIST=0x0F,0x0F,0xF0,0xF0 | 0-1:2 2-3:2 4-5:2 6-7:2
    smt  | slurm    | CPU_BIND_LIST=0x00FF              | 0:1 2:1 4:1 6:1
    flat | slurm    | CPUS_ON_NODE=4                    | 0-7:1 0-7:1 0-7:1 0-7:1
    flat | mpi      | JOB_ID=1 NSLOTS=4                 | 0-7:1 0-7:1 0-7:1 0-7:1
    smt  | flux     |                                   | 0,2:2 4,6:2 8,10:2 12,14:2
    flat | torchrun | OMP_NUM_THREADS=1                 | 0-1:2 2-3:2 4-5:2 6-7:2
"""))  # fmt: skip
def test_every_rank_gets_cpus_of_its_own_inside_the_allocation(machine, launcher, variables, ranks):
    """Ranks that get the same CPUs have a thread for each CPU of the job, and a warning says so."""
    expected = ranks.split()

    def run(rank):
        if launcher == "slurm":
            env = make_env(SLURM.format(rank, len(expected), variables), "SLURM_")
        else:
            env = make_env(OTHERS[launcher].format(rank, len(expected), variables))
        return call("exec", "--dry-run", "--topology", MACHINES[machine], "--", "true", **env)

    dones = [run(rank) for rank in range(len(expected))]
    lines = [done.stdout.splitlines()[-1] if done.stdout else done.stderr for done in dones]
    form = r"rank (\d) of \d on node \S+: CPUs? (\S+), .*?(\d+) threads?"
    found = [re.fullmatch(form, line) for line in lines]
    assert all(found), lines
    assert [int(match[1]) for match in found] == list(range(len(expected)))
    assert [f"{match[2]}:{match[3]}" for match in found] == expected
    cpus = [CpuSet.from_list(match[2]) for match in found]
    are_disjoint = sum(map(len, cpus)) == len(CpuSet(cpu for each in cpus for cpu in each))
    assert ("warning: this job may use" in one_line(dones[0].stdout)) == (not are_disjoint)


@pytest.mark.parametrize(("command", "machine", "variables", "idle"), rows("""
    exec           | smt  | CPU_BIND_LIST=0x0003 CPUS_PER_TASK=2 |
    exec           | smt  | CPU_BIND_LIST=0x00FF CPUS_PER_TASK=2 | CPUs 1-7:2
    exec           | flat | CPU_BIND_LIST=0x0003 CPUS_PER_TASK=2 |
    exec -c 1      | smt  | CPU_BIND_LIST=0x00FF CPUS_PER_TASK=4 |
    run -n 4       | smt  | CPUS_PER_TASK=16                     | CPUs 1-15:2
    run -n 8       | smt  | CPUS_PER_TASK=8                      |
"""))  # fmt: skip
def test_a_task_whose_cpus_are_hardware_threads_is_warned_about(command, machine, variables, idle):
    """`srun -c 2` on a machine with two hardware threads per core is one core, and one thread."""
    env = make_env(SLURM.format(0, 1 if "0003" in variables else 4, variables), "SLURM_")
    done = call(*command.split(), "--dry-run", "--topology", MACHINES[machine], "--", "true", **env)
    assert (done.returncode, "--cpus-per-task" in done.stdout) == (0, bool(idle)), done.stdout
    assert f"ranks leave {idle} of their cores idle (--smt all" in one_line(done.stdout) or not idle


@pytest.mark.parametrize(("variables", "options", "text"), rows("""
    CPU_BIND_LIST=0x01                |         | CPU 0 for 4 ranks: their threads will compete (request a CPU
    CPU_BIND_LIST=0x01,0x02           |         | CPUs 0-1 for 4 ranks
    CPU_BIND_LIST=0x01,0x01,0x06,0x08 |         | (write 'srun --cpu-bind=none': then
    CPU_BIND_LIST=0x01                | --share |
    CPU_BIND_LIST=0x0F                |         |
    CPU_BIND_LIST=0x01,0x06,0x08,0x10 CPUS_PER_TASK=2 |  |
    CPU_BIND_LIST=0x01,0x02,0x04,0x08 CPUS_PER_TASK=2 |  | but SLURM_CPUS_PER_TASK is 2 (write
"""))  # fmt: skip
def test_what_is_advised_where_ranks_have_the_same_cpus(variables, options, text):
    """Without binding, ompbind could divide the CPUs, but not fewer CPUs than ranks."""
    env = make_env(SLURM.format(0, 4, variables), "SLURM_")
    words = ("exec", *options.split(), "--dry-run", "--topology", MACHINES["flat"], "--", "true")
    done = call(*words, **env)
    assert text in one_line(done.stderr)
    assert (done.returncode, "warning" in done.stderr) == (0, bool(text))
    assert call(*words[:1], "--strict", *words[1:], **env).returncode == 125 * bool(text)


NODES = "this Slurm job has 2 nodes (SLURM_JOB_NUM_NODES), but 'ompbind run' starts ranks only on this"


@pytest.mark.parametrize(("variables", "options", "warned"), rows("""
    JOB_NUM_NODES=2                                  |    | yes
    JOB_NUM_NODES=2                                  | -q |
    JOB_NUM_NODES=2 PROCID=0 LOCALID=0 NTASKS=2 STEP_ID=4294967290                       |    | yes
    JOB_NUM_NODES=2 PROCID=1 LOCALID=0 NTASKS=2 STEP_ID=0 STEP_TASKS_PER_NODE=1 NODEID=1 |    |
"""))  # fmt: skip
def test_a_run_in_a_job_of_several_nodes_is_warned_about_unless_it_is_a_task(
    ompbind, variables, options, warned
):
    env = make_env(f"JOB_ID=1 {variables}", "SLURM_")
    done = ompbind("run", *options.split(), "--", "true", env=env)
    assert (done.returncode, NODES in one_line(done.stderr)) == (0, bool(warned)), done.stderr
    if warned:
        done = ompbind("run", "--", "ompbind", "run", "--", "true", env=env)
        assert done.stderr.count("SLURM_JOB_NUM") == 1


SHOW = ("sh", "-c", "echo $RANK $OMPBIND_CPUS")


def test_a_rank_outside_of_its_outer_rank_is_warned_about(ompbind):
    """A launcher in a rank of ompbind that binds by itself; here taskset takes its place."""
    first, second = two_cpus()
    inner = f"taskset -c {second} ompbind exec --local-rank 0 --local-size 1"
    required("taskset")
    done = ompbind("run", "-m", str(first), "--", "sh", "-c", f"{inner} -- sh -c 'echo $OMPBIND_CPUS'; :")
    assert (done.returncode, done.stdout) == (0, f"{second}\n")
    assert f"to CPU {second}, outside of its outer rank, which has CPU {first}" in one_line(done.stderr)
    assert "--bind-to none" in one_line(done.stderr)
    done = ompbind("run", "-m", str(first), "--", "sh", "-c", f"{inner} --strict -- echo up; exit $?")
    assert (done.returncode, done.stdout) == (125, "")


def test_exec_in_exec_is_not_bound_by_the_launcher(ompbind):
    done = ompbind("exec", "--", "ompbind", "exec", "--", *SHOW, before=launcher_words("mpich", 2))
    assert sorted(done.stdout.splitlines()) == [f"{rank} {cpu}" for rank, cpu in enumerate(two_cpus())]
    assert "already bound by an outer 'ompbind exec'" in one_line(done.stderr)
    assert not re.search("by MPICH|divided", one_line(done.stderr))


def test_a_job_with_fewer_slots_than_cpus_is_not_bound(ompbind):
    """Only -m and --avoid choose CPUs; threads beyond what the batch system allows take a -t."""
    _, second = two_cpus()
    everything = str(CpuSet(os.sched_getaffinity(0)))
    code = "import os; print(os.environ.get('OMP_NUM_THREADS'), *os.sched_getaffinity(0))"
    show = (sys.executable, "-S", "-c", code)
    env = {"JOB_ID": "1", "NSLOTS": "1", "OMP_NUM_THREADS": "1"}
    done = ompbind("run", "--", *show, env=env)
    threads, *cpus = done.stdout.split()
    assert (threads, str(CpuSet(map(int, cpus)))) == ("1", everything)
    assert "the 1 CPU that SGE allows (NSLOTS), but is not bound to any" in one_line(done.stderr)
    assert ompbind("run", "-m", str(second), "--", *show, env=env).stdout.split() == ["None", str(second)]
    assert len(ompbind("run", "--avoid", "--", *show, env=env).stdout.split()) == 2
    assert ompbind("run", "-t", "2", "--", *show, env=env).stdout.split()[0] == "2"
    assert ompbind("run", "--strict", "--", *show, env=env).returncode == 125


def test_only_the_cpus_that_lsf_lists_are_used(ompbind):
    first, second = two_cpus()
    env = {"LSB_JOBID": "1", "LSB_BIND_CPU_LIST": str(second), "LSB_DJOB_NUMPROC": "1"}
    done = ompbind("run", "--", *SHOW, env=env)
    assert (done.stdout, done.stderr) == (f"0 {second}\n", "")
    assert ompbind("run", "-m", str(first), "--", *SHOW, env=env).returncode == 125


@pytest.mark.parametrize(("text", "found"), [
    ("{h} {b}\n{h} {a}\n", "ba"), ("{h}.example.org {b} 0 2\nother {a}\n{h} {a} 0 2\n", "ba"),
    ("", "ab"), ("{h} 5000\n{h} 5001\n", "ab"), ("{h} {b}\n", "for 1 rank of the 2"),
    ("{h} x\n{h} 0\n", "no list"), ("{h}\n{h}\n", "ab"),
])  # fmt: skip
def test_lsf_names_the_cpus_of_each_rank_in_a_file(ompbind, tmp_path, text, found):
    """The n-th line of this machine is about the n-th local rank; CPUs that are not allowed are ignored."""
    cpus = dict(zip("ab", two_cpus(), strict=True))
    (tmp_path / "affinity").write_text(text.format(h=os.uname().nodename.partition(".")[0], **cpus))
    env = {"LSB_JOBID": "1", "LSB_DJOB_NUMPROC": "2", "LSB_AFFINITY_HOSTFILE": str(tmp_path / "affinity")}
    for rank, name in enumerate(found[:2]):
        variables = dict(word.split("=") for word in OTHERS["mpi"].format(rank, 2, "").split())
        done = ompbind("exec", "--", *SHOW, env=env | variables)
        expected = f"{rank} {cpus[name]}\n" if len(found) == 2 else ""
        assert (done.stdout, found in one_line(done.stderr)) == (expected, not expected), done.stderr
        masked = ompbind("exec", "-m", f"{cpus['b']}|{cpus['a']}", "--", *SHOW, env=env | variables)
        assert masked.stdout == f"{rank} {cpus['ba'[rank]]}\n"


@pytest.mark.parametrize("options", ["-m 9999", "--bogus", "-n 3"], ids=["mask", "option", "number"])
def test_the_first_rank_prints_an_error_and_the_others_a_line(ompbind, options):
    done = ompbind("exec", *options.split(), "--", "true", before=launcher_words("mpich", 4))
    assert done.returncode == 125
    lines = done.stderr.splitlines()
    assert [line.startswith("  hint: ") for line in lines].count(True) == 1
    short = sorted(line for line in lines if "local rank " in line)
    assert [line.split(": ")[2] for line in short] == [f"local rank {rank}" for rank in (1, 2, 3)]


@pytest.mark.parametrize("variable", ["JSM_NAMESPACE_RANK=3", "MV2_COMM_WORLD_RANK=3", "ALPS_APP_PE=3"])
def test_a_rank_of_an_unknown_launcher_is_warned_about(ompbind, variable):
    name, _, value = variable.partition("=")
    done = ompbind("exec", "--", "sh", "-c", "echo $RANK $WORLD_SIZE", env={name: value})
    assert (done.returncode, done.stdout) == (0, "0 1\n")
    assert f"warning: {variable} is not read" in one_line(done.stderr)
    assert "--local-rank" in one_line(done.stderr)
    assert ompbind("exec", "--", "true", env={"PBS_JOBID": "1.s", "PBS_TASKNUM": "1"}).stderr == ""
