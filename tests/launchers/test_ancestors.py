"""The processes that started a rank: the launcher's daemon, and whether it has bound the rank."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.launchers.ancestors import find_daemon, find_starter, is_bound, read_ancestors
from ompbind.machine.sources.root import DirectoryRoot

SLURM, TORCHRUN = ("slurmstepd",), ("pt_elastic",)


def write_processes(directory, *processes):
    """Write /proc with (name, CPUs) of processes, each started by the one before it; return the last pid."""
    for pid, (name, cpus) in enumerate(processes, 1):
        path = directory / f"proc/{pid}/status"
        path.parent.mkdir(parents=True)
        path.write_text(f"Name:\t{name}\nPPid:\t{pid - 1}\nCpus_allowed_list:\t{cpus}\n")
    return DirectoryRoot(str(directory)), len(processes)


def test_ancestors_are_read_up_to_the_first_process(tmp_path):
    root, pid = write_processes(tmp_path, ("init", "0"), ("slurmstepd", "0"), ("sh", "0"), ("ompbind", "0"))
    found = list(read_ancestors(root, pid))
    assert [(ancestor.pid, ancestor.name) for ancestor in found] == [(3, "sh"), (2, "slurmstepd")]
    assert find_daemon(found, SLURM).pid == 2
    assert find_daemon(found, TORCHRUN) is None


@pytest.mark.parametrize(
    ("processes", "daemons", "bound"),
    [
        ([("slurmstepd", "0-7"), ("ompbind", "0-1")], SLURM, True),
        ([("slurmstepd", "0-7"), ("sh", "0-1"), ("ompbind", "0-1")], SLURM, True),
        ([("slurmstepd", "0-7"), ("ompbind", "0-7")], SLURM, False),
        ([("slurmstepd", "0-7"), ("pt_elastic", "0-3"), ("ompbind", "0-3")], TORCHRUN, False),
        ([("slurmstepd", "0-7"), ("python3", "0-3"), ("ompbind", "0-3")], TORCHRUN, False),
        ([("slurmstepd", "0-7"), ("pt_elastic", "0-3"), ("ompbind", "0-1")], TORCHRUN, True),
        ([("bash", "0-7"), ("ompbind", "2")], (), True),
        ([("containerd-shim", "none"), ("ompbind", "0-1")], SLURM, False),
        ([("ompbind", "0-1")], SLURM, False),
    ],
    ids=["srun", "shell", "unbound", "agent", "old agent", "in agent", "by hand", "unreadable", "hidden"],
)
def test_a_rank_is_bound_if_it_has_fewer_cpus_than_its_own_launcher(tmp_path, processes, daemons, bound):
    """A torchrun that srun has bound has not bound its ranks: they divide its CPUs."""
    root, pid = write_processes(tmp_path, ("init", "0-7"), *processes)
    starter = find_starter(tuple(read_ancestors(root, pid)), daemons)
    assert is_bound(root, starter, CpuSet.from_list(processes[-1][1])) == bound
