"""What a launcher or batch system gives: CPUs of a job on this machine, CPUs of a rank, or only a number.

These are three things:

1. The *allocation*: the CPUs of the job on this machine. All ranks have one affinity mask, and divide it.
2. The *binding*: the launcher has given a rank CPUs of its own; ranks that have the same CPUs divide these.
3. The *number*: no affinity mask limits the job, and a variable says how many CPUs the job may use.

To add a batch system: one row in `BATCH_SYSTEMS`.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from ompbind.commands.environment import RankIdentity
from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.launchers.launchers import SLURM, Env
from ompbind.machine.read.root import Root, whole_number
from ompbind.planning.request import RANK_LIMIT, JobCpus
from ompbind.record import Record


class Binding(Record):
    """The local ranks of a machine that divide the CPUs of a rank, with this rank, in ascending order.

    With `overlaps`, some ranks of the machine run on CPUs of each other, and no plan can prevent it.
    """

    sharers: tuple[int, ...]
    overlaps: bool = False


def find_binding(
    identity: RankIdentity, allowed: CpuSet, masks: Sequence[CpuSet], launcher_cpus: CpuSet | None
) -> Binding:
    """Return with which ranks of this machine a rank divides its `allowed` CPUs.

    The launcher lists `masks` (`read_task_masks`). Without a list, a rank is bound if it has fewer CPUs than
    the launcher itself; `launcher_cpus` is None if these are unknown.
    """
    size, local_rank = identity.local_size, identity.local_rank
    everyone = tuple(range(size))
    if masks and allowed <= masks[local_rank % len(masks)]:
        of_rank = [masks[rank % len(masks)] for rank in everyone]
        numbers = Counter(of_rank)
        sharers = tuple(rank for rank in everyone if of_rank[rank] == of_rank[local_rank])
        crosses = sum(map(len, numbers)) > len(union(numbers))
        is_full = any(number > len(mask) for mask, number in numbers.items())
        if len(sharers) > len(allowed):
            sharers = (local_rank,)
        return Binding(sharers=sharers, overlaps=crosses or is_full)
    if size == 1 or launcher_cpus is None or launcher_cpus <= allowed:
        return Binding(sharers=everyone)
    return Binding(sharers=(local_rank,), overlaps=size * len(allowed) > len(launcher_cpus))


def read_task_masks(env: Env, launcher: str) -> tuple[CpuSet, ...]:
    """Return the CPUs that Slurm lists for the tasks of this machine, in the order of local ranks.

    A shorter list begins again at its end: one mask is for all tasks. Slurm lists the mask of the job even
    with `--cpu-bind=none`. Empty for other launchers, without a list, or if the list cannot be read.
    """
    if launcher != SLURM.name:
        return ()
    text, is_map = env.get("SLURM_CPU_BIND_LIST", ""), "map_cpu" in env.get("SLURM_CPU_BIND_TYPE", "")
    masks: list[CpuSet] = []
    try:
        for item in filter(None, text.split(",")):
            word, _, times = item.partition("*")
            cpus = CpuSet([int(word, 0)]) if is_map else CpuSet.from_mask(word.lower().removeprefix("0x"))
            masks += [cpus] * min(int(times or 1), RANK_LIMIT)
    except (ValueError, OverflowError):
        return ()
    return tuple(masks) if EMPTY not in masks else ()


def read_job_cpus(env: Env, root: Root, node: str) -> JobCpus | None:
    """Return how many CPUs of this machine a batch system allows, None if no variable says so.

    `node` is the host name of this machine. Source: the documentation of each batch system.
    """
    for system, marks, read in BATCH_SYSTEMS:
        if all(env.get(mark) for mark in marks) and (found := read(env, root, node)):
            variable, number = found
            return JobCpus(system=system, variable=variable, count=number)
    return None


def read_listed_cpus(env: Env) -> CpuSet:
    """Return the CPUs that LSF lists for this job (`LSB_BIND_CPU_LIST`), empty without a list."""
    try:
        return CpuSet.from_list(env.get("LSB_BIND_CPU_LIST", "") if env.get("LSB_JOBID") else "")
    except ValueError:
        return EMPTY


Found = tuple[str, int] | None
"""The name of a variable and the number of CPUs that it says."""


def _read_slurm(env: Env, root: Root, node: str) -> Found:
    return _read_variable(env, "SLURM_CPUS_ON_NODE")


def _read_sge(env: Env, root: Root, node: str) -> Found:
    """Read the slots of this machine; NSLOTS counts the slots of all machines."""
    if env.get("NHOSTS", "1") == "1":
        return _read_variable(env, "NSLOTS")
    return _count_slots(_read_words(env, root, "PE_HOSTFILE"), "PE_HOSTFILE", node)


def _read_pbs(env: Env, root: Root, node: str) -> Found:
    """Read the larger of two numbers: either may count processes that have several CPUs each."""
    found = [_read_variable(env, "NCPUS"), _count_lines(env, root, "PBS_NODEFILE", node)]
    return max(filter(None, found), key=lambda pair: pair[1], default=None)


def _read_lsf(env: Env, root: Root, node: str) -> Found:
    """Read the slots of this machine; LSB_DJOB_NUMPROC counts the slots of all machines."""
    words = env.get("LSB_MCPU_HOSTS", "").split()
    pairs = [[host, slots] for host, slots in zip(words[::2], words[1::2], strict=False)]
    return _count_slots(pairs, "LSB_MCPU_HOSTS", node) or _read_variable(env, "LSB_DJOB_NUMPROC")


def _read_condor(env: Env, root: Root, node: str) -> Found:
    """Read the CPUs of the slot, or else the CPUs that the job has requested."""
    for variable, name in (("_CONDOR_MACHINE_AD", "cpus"), ("_CONDOR_JOB_AD", "requestcpus")):
        for words in _read_words(env, root, variable):
            number = whole_number(words[-1])
            if words[:2] == [words[0], "="] and words[0].lower() == name and number:
                return variable, number
    return None


def _read_oar(env: Env, root: Root, node: str) -> Found:
    return _count_lines(env, root, "OAR_NODEFILE", node)


BATCH_SYSTEMS: tuple[tuple[str, tuple[str, ...], Callable[[Env, Root, str], Found]], ...] = (
    ("Slurm", ("SLURM_JOB_ID",), _read_slurm),
    ("SGE", ("JOB_ID", "NSLOTS"), _read_sge),
    ("PBS", ("PBS_JOBID",), _read_pbs),
    ("LSF", ("LSB_JOBID",), _read_lsf),
    ("HTCondor", ("_CONDOR_SLOT",), _read_condor),
    ("OAR", ("OAR_NODEFILE",), _read_oar),
)
"""Each batch system: its name, the variables that only it sets, and what reads its number of CPUs."""


def _read_variable(env: Env, name: str) -> Found:
    number = whole_number(env.get(name))
    return (name, number) if number else None


def _read_words(env: Env, root: Root, variable: str) -> list[list[str]]:
    """Return the words of each line, without empty lines, of the file that a variable names."""
    path = env.get(variable, "")
    text = root.read(path.lstrip("/")) if path.startswith("/") else None
    return [line.split() for line in (text or "").splitlines() if line.strip()]


def _count_lines(env: Env, root: Root, variable: str, node: str) -> Found:
    """Return how many lines of a file name this machine."""
    lines = [words for words in _read_words(env, root, variable) if _is_node(words[0], node)]
    return (variable, len(lines)) if lines else None


def _count_slots(pairs: Sequence[Sequence[str]], variable: str, node: str) -> Found:
    """Return the sum of the numbers that follow the name of this machine."""
    found = (whole_number(words[1]) or 0 for words in pairs if words[1:] and _is_node(words[0], node))
    number = sum(found)
    return (variable, number) if number else None


def _is_node(name: str, node: str) -> bool:
    """Return whether two host names are the same, one of them perhaps without its domain."""
    return name.partition(".")[0] == node.partition(".")[0]
