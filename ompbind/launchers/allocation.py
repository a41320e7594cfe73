"""What a launcher or batch system gives: CPUs of a job on this machine, CPUs or GPUs of a rank, or a number.

1. The *allocation*: the CPUs of the job on this machine. All ranks have one affinity mask, and divide it.
2. The *binding*: the launcher has given a rank CPUs of its own; ranks that have the same CPUs divide these.
3. The *number*: no affinity mask limits the job, and a variable says how many CPUs the job may use.
4. *Own GPUs*: a rank sees only GPUs of its own, as with srun --gpus-per-task=1, and plans for all ranks.

To add a batch system: one row in `BATCH_SYSTEMS`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from ompbind.commands.environment import RankIdentity
from ompbind.cpuset import EMPTY, CpuSet, count, union
from ompbind.errors import RequestError
from ompbind.launchers.launchers import SLURM, Env
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.model import Machine
from ompbind.machine.read.root import Root
from ompbind.planning.request import RANK_LIMIT, JobCpus, Request, VisibleDevices
from ompbind.record import Record
from ompbind.text import whole_number


class Binding(Record):
    """The local ranks of a machine that divide the CPUs of a rank, with this rank, in ascending order.

    With `overlaps`, some ranks of the machine run on CPUs of each other, and no plan can prevent it. `cpus`
    are the CPUs of all ranks that the launcher has bound.
    """

    sharers: tuple[int, ...]
    overlaps: bool = False
    cpus: CpuSet = EMPTY


def find_binding(
    identity: RankIdentity, allowed: CpuSet, masks: Sequence[CpuSet], launcher_cpus: CpuSet | None
) -> Binding:
    """Return with which ranks of this machine a rank divides its `allowed` CPUs.

    The launcher lists `masks` (`read_task_masks`). Without a list, a rank is bound if it has fewer CPUs than
    the launcher itself; `launcher_cpus` is None if these are unknown.
    """
    size, local_rank = identity.local_size, identity.local_rank
    if masks and allowed <= masks[local_rank % len(masks)]:
        of_rank = [masks[rank % len(masks)] for rank in range(size)]
        numbers = Counter(of_rank)
        sharers = tuple(rank for rank, mask in enumerate(of_rank) if mask == of_rank[local_rank])
        cpus = union(numbers)
        crosses = sum(map(len, numbers)) > len(cpus)
        is_full = any(number > len(mask) for mask, number in numbers.items())
        sharers = sharers if len(sharers) <= len(allowed) else (local_rank,)
        return Binding(sharers=sharers, overlaps=crosses or is_full, cpus=cpus)
    if size == 1 or launcher_cpus is None or launcher_cpus <= allowed:
        return Binding(sharers=tuple(range(size)))
    overlaps = size * len(allowed) > len(launcher_cpus)
    return Binding(sharers=(local_rank,), overlaps=overlaps, cpus=launcher_cpus)


def read_task_masks(env: Env, launcher: str) -> tuple[CpuSet, ...]:
    """Return the CPUs that Slurm lists for the tasks of this machine, in the order of local ranks, or ().

    A shorter list begins again at its end. Slurm lists the mask of the job even with `--cpu-bind=none`.
    """
    if launcher != SLURM.name:
        return ()
    text, is_map = env.get("SLURM_CPU_BIND_LIST", ""), "map_cpu" in env.get("SLURM_CPU_BIND_TYPE", "")
    masks: list[CpuSet] = []
    try:
        for item in filter(None, text.split(",")):
            word, _, times = item.partition("*")
            number = str(int(word, 0)) if is_map else ""  # hexadecimal too
            cpus = CpuSet.from_list(number) if is_map else CpuSet.from_mask(word.lower().removeprefix("0x"))
            masks += [cpus] * (whole_number(times or "1", RANK_LIMIT) or 0)
    except ValueError:
        return ()
    return tuple(masks) if EMPTY not in masks else ()


def read_job_cpus(env: Env, root: Root, node: str) -> JobCpus | None:
    """Return how many CPUs of this machine, the host `node`, a batch system allows; None if unknown."""
    for system in BATCH_SYSTEMS:
        if system.is_in(env) and (found := system.read_count(_Job(env, root, node))):
            variable, number = found
            return JobCpus(system=system.name, variable=variable, count=number)
    return None


def read_listed_cpus(env: Env) -> CpuSet:
    """Return the CPUs that a batch system lists for this job, empty without a list."""
    lists = (env.get(system.cpu_list, "") for system in BATCH_SYSTEMS if system.is_in(env))
    try:
        return CpuSet.from_list(next(filter(None, lists), ""))
    except ValueError:
        return EMPTY


def read_rank_cpus(env: Env, root: Root, node: str, size: int) -> tuple[str, tuple[CpuSet, ...]]:
    """Return the batch system that names CPUs for the `size` ranks on this machine, "" for none, and these.

    Raises RequestError for CPUs of fewer ranks, and for a malformed list.
    """
    for system in BATCH_SYSTEMS:
        masks = system.read_masks(_Job(env, root, node)) if system.is_in(env) else ()
        if 0 < len(masks) < size:
            text = f"{system.name} names CPUs for {count(len(masks), 'rank')} of the {size} on this machine"
            raise RequestError(text, hint=f"start as many ranks as {system.name} names, or name CPUs with -m")
        if masks:
            return system.name, masks
    return "", ()


class JobNodes(Record):
    """The nodes of a job: its batch system, the source of their number, and the words that start tasks."""

    system: str
    source: str
    count: int
    start: str


def read_job_nodes(env: Env, root: Root, node: str) -> JobNodes | None:
    """Return the nodes of the job whose script, or shell, this process belongs to, None for a single node."""
    for system in BATCH_SYSTEMS:
        is_script = all(env.get(name, value) == value for name, value in system.script)
        found = system.read_nodes(_Job(env, root, node)) if system.is_in(env) and is_script else None
        if found and found[1] > 1:
            return JobNodes(system=system.name, source=found[0], count=found[1], start=system.start)
    return None


Found = tuple[str, int] | None  # the name of a variable and the number that it says


class _Job:
    """The variables of a job, the files that they name, and the name of this machine."""

    def __init__(self, env: Env, root: Root, node: str) -> None:
        self.env, self._root, self.node = env, root, node.partition(".")[0]

    def read_variable(self, name: str) -> Found:
        number = whole_number(self.env.get(name))
        return (name, number) if number else None

    def read_words(self, variable: str) -> list[list[str]]:
        """Return the words of each line, without empty lines, of the file that a variable names."""
        path = self.env.get(variable, "")
        text = self._root.read(path.lstrip("/")) if path.startswith("/") else None
        return [line.split() for line in (text or "").splitlines() if line.strip()]

    def count_lines(self, variable: str) -> Found:
        """Return how many lines of a file name this machine."""
        return self.count_slots(variable, [[words[0], "1"] for words in self.read_words(variable)])

    def count_slots(self, variable: str, pairs: Sequence[Sequence[str]]) -> Found:
        """Return the sum of the numbers that follow the name of this machine, with or without its domain."""
        own = (words[1] for words in pairs if words[1:] and words[0].partition(".")[0] == self.node)
        number = sum(whole_number(word) or 0 for word in own)
        return (variable, number) if number else None

    def read_pairs(self, variable: str) -> list[tuple[str, str]]:
        """Return the words of a variable in pairs."""
        words = self.env.get(variable, "").split()
        return [*zip(words[::2], words[1::2], strict=False)]

    def count_hosts(self, variable: str) -> Found:
        """Return how many hosts begin the lines of the file that a variable names, or its pairs of words."""
        return variable, len({words[0] for words in self.read_words(variable) or self.read_pairs(variable)})

    def ask_flux(self) -> Found:
        """Ask Flux for the number of its nodes: no variable says it."""
        from ompbind.launchers.taskmap import ask_flux  # noqa: PLC0415 - door: Flux

        number = whole_number(ask_flux(self.env, "getattr", "size").strip())
        return ("flux getattr size", number) if number else None


def _read_sge(job: _Job) -> Found:
    """Read the slots of this machine; NSLOTS counts the slots of all machines."""
    if job.env.get("NHOSTS", "1") == "1":
        return job.read_variable("NSLOTS")
    return job.count_slots("PE_HOSTFILE", job.read_words("PE_HOSTFILE"))


def _read_pbs(job: _Job) -> Found:
    """Read the larger of two numbers: either may count processes that have several CPUs each."""
    found = job.read_variable("NCPUS"), job.count_lines("PBS_NODEFILE")
    return max(filter(None, found), key=lambda pair: pair[1], default=None)


def _read_lsf(job: _Job) -> Found:
    """Read the slots of this machine; LSB_DJOB_NUMPROC counts the slots of all machines."""
    slots = job.count_slots("LSB_MCPU_HOSTS", job.read_pairs("LSB_MCPU_HOSTS"))
    return slots or job.read_variable("LSB_DJOB_NUMPROC")


def _read_lsf_masks(job: _Job) -> tuple[CpuSet, ...]:
    """Read "HOST CPUS [NODES POLICY]": each line of this machine is about a rank, in the order of ranks."""
    variable = "LSB_AFFINITY_HOSTFILE"
    words_of = job.read_words(variable)
    lines = [words for words in words_of if words[0].partition(".")[0] == job.node]
    with suppress(ValueError):
        if lines or not words_of:
            return tuple(CpuSet.from_list(words[1]) for words in lines if words[1:])
    text = f"the file {job.env[variable]} ({variable}) has no list of CPUs for each rank of {job.node}"
    raise RequestError(text, hint="unset the variable, or name CPUs with -m")


def _read_condor(job: _Job) -> Found:
    """Read the CPUs of the slot, or else the CPUs that the job has requested."""
    for variable, name in (("_CONDOR_MACHINE_AD", "cpus"), ("_CONDOR_JOB_AD", "requestcpus")):
        for words in job.read_words(variable):
            number = whole_number(words[-1])
            if words[:2] == [words[0], "="] and words[0].lower() == name and number:
                return variable, number
    return None


class BatchSystem(Record):
    """One batch system: its name, the variables that only it sets, and how it says what a job may use.

    `read_count` reads how many CPUs of this machine the job may use, `read_nodes` how many nodes it has,
    `read_masks` the CPUs of each rank.
    `cpu_list` is the variable that lists these CPUs, where nothing is bound to them; "" for none. `script`
    are the values of variables in the script of a job that have others in a task. `start` starts tasks.
    """

    name: str
    marks: tuple[str, ...]
    read_count: Callable[[_Job], Found] = lambda job: None
    read_nodes: Callable[[_Job], Found] = lambda job: None
    read_masks: Callable[[_Job], tuple[CpuSet, ...]] = lambda job: ()
    cpu_list: str = ""
    script: tuple[tuple[str, str], ...] = ()
    start: str = "mpirun --bind-to none"

    def is_in(self, env: Env) -> bool:
        """Return whether an environment is that of a job of this system."""
        return all(env.get(mark) for mark in self.marks)


BATCH_SYSTEMS = (
    BatchSystem(
        name="Slurm", marks=("SLURM_JOB_ID",),
        read_count=lambda job: job.read_variable("SLURM_CPUS_ON_NODE"),
        read_nodes=lambda job: job.read_variable("SLURM_JOB_NUM_NODES"), start="srun --cpu-bind=none",
    ),
    BatchSystem(
        name="SGE", marks=("JOB_ID", "NSLOTS"), read_count=_read_sge,
        read_nodes=lambda job: job.read_variable("NHOSTS"),
    ),
    BatchSystem(
        name="PBS", marks=("PBS_JOBID",), read_count=_read_pbs,
        read_nodes=lambda job: job.count_hosts("PBS_NODEFILE"),
        script=(("PBS_NODENUM", "0"), ("PBS_TASKNUM", "1")),  # pbsdsh
    ),
    BatchSystem(
        name="LSF", marks=("LSB_JOBID",), read_count=_read_lsf, cpu_list="LSB_BIND_CPU_LIST",
        read_nodes=lambda job: job.count_hosts("LSB_MCPU_HOSTS"), read_masks=_read_lsf_masks,
        script=(("LSF_PM_TASKID", ""),),  # blaunch
    ),
    # in its parallel universe, the command runs on each node
    BatchSystem(name="HTCondor", marks=("_CONDOR_SLOT",), read_count=_read_condor),
    BatchSystem(
        name="OAR", marks=("OAR_NODEFILE",), read_count=lambda job: job.count_lines("OAR_NODEFILE"),
        read_nodes=lambda job: job.count_hosts("OAR_NODEFILE"),
    ),
    BatchSystem(
        name="Flux", marks=("FLUX_URI",), read_nodes=_Job.ask_flux, script=(("FLUX_JOB_ID", ""),),
        start="flux run",
    ),
)  # fmt: skip
"""All known batch systems."""


def request_own_gpus(
    request: Request, machine: Machine, ranks: int, env: Env, *, by_slurm: bool
) -> tuple[Request, int | None, str]:
    """Return the request of a rank that may see only GPUs of its own, and none of other ranks.

    Also the index of its placement, None if that stays as it is, and why no plan can have the GPUs of a rank,
    "" otherwise. The request stays as it is if all `ranks` on a machine see the same GPUs, as far as is
    known. A rank with CPUs of its own keeps its GPUs too. If Slurm has divided all GPUs of the machine
    evenly, the plan has all of them, and each rank takes the placement with its own GPUs. Otherwise, ranks
    get CPUs as they would without devices.
    """
    wants_gpus = request.devices == "auto" or DeviceKind.GPU in request.devices
    seen = request.visible.devices if request.visible else ()
    own, every = _select_gpus(seen), _select_gpus(machine.devices)
    if ranks == 1 or not wants_gpus or not own:
        return request, None, ""
    # Slurm says how many GPUs all ranks have. With other launchers, the visible GPUs are the rank's own if
    # they are too few for all ranks, but the GPUs of the machine are not.
    given = (whole_number(env.get("SLURM_GPUS_ON_NODE")) or 0) if by_slurm else 0
    needed = ranks * (request.devices_per_rank or 1)
    is_narrowed = len(own) < needed <= len(every) and not request.share_devices
    if not (len(own) < given if given else is_narrowed):
        return request, None, ""
    if request.outside_ranks:
        return request.replace(has_own_devices=True), None, ""
    each = len(own)
    by_list = any(word in env.get("SLURMD_TRES_BIND", "") for word in ("map_gpu", "mask_gpu"))
    are_divided = given == len(every) == ranks * each and not by_list  # a list can repeat a GPU
    blocks = [every[start : start + each] for start in range(0, len(every), each)]
    at = next((index for index, block in enumerate(blocks) if set(block) == set(own)), None)
    if are_divided and at is not None and request.devices_per_rank in (None, each) and request.needs_strategy:
        others = (device for device in seen if device.kind is not DeviceKind.GPU)
        visible = VisibleDevices(devices=(*every, *others))
        request = request.replace(visible=visible, devices_per_rank=each, share_devices=False)
        return request, at, ""
    text = f"sees {count(each, 'GPU')} of {len(every)}, and cannot plan for the GPUs of the other ranks"
    return request.replace(devices=()), None, text


def _select_gpus(devices: Iterable[Device]) -> tuple[Device, ...]:
    return tuple(device for device in devices if device.kind is DeviceKind.GPU and not device.physical)
