"""A placement request, with all checks that need no machine.

A *rank* is one started copy of the command, 0 to n-1 on this machine. *Reserved* cores are cores that no rank
may use: they are for the operating system and other programs. *Service* cores belong to a rank, but no OpenMP
worker runs there: they are for the rank's own schedulers and I/O threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from ompbind.cpuset import count
from ompbind.errors import RequestError
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.model import CORE_CHOICES, CoreChoice, Level
from ompbind.masks.mask import Mask, MaskWord
from ompbind.openmp.binding import Bind, ProcBind
from ompbind.openmp.runtimes import WAIT_VARIABLES, OmpRuntime
from ompbind.programs.command import Workload
from ompbind.record import Record


class JobCpus(Record):
    """How many CPUs of a machine a batch system allows a job; `variable` is where it says so.

    `unused` are options of the request that have no effect, because nothing is bound.
    """

    system: str
    variable: str
    count: int
    unused: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{count(self.count, 'CPU')} that {self.system} allows ({self.variable})"


RANK_LIMIT = 1 << 16  # more ranks than this on one machine are refused as a typing error


class MemoryMode(StrEnum):
    """The memory policy of a rank: the kernel's default (local), or a policy for its NUMA nodes."""

    LOCAL = "local"
    BIND = "bind"
    PREFERRED = "preferred"
    INTERLEAVE = "interleave"
    WEIGHTED = "weighted"


class Hold(StrEnum):
    """How a run holds threads on the CPUs of their rank: it answers their requests, or nothing changes."""

    ANSWERED = "answered"
    FIXED = "fixed"

    @property
    def option(self) -> str:
        """The option of the run."""
        return "--hold" if self is Hold.ANSWERED else f"--hold={self}"


class Sharing(StrEnum):
    """What to do about CPUs that other runs use: warn, share, avoid (always, or if no rank loses), refuse."""

    WARN = "warn"
    PREFER_FREE = "prefer-free"
    SHARE = "share"
    AVOID = "avoid"
    EXCLUSIVE = "exclusive"


DEVICE_KINDS = ("gpu", "nic")  # the kinds of devices that ranks can get: values of `DeviceKind`
DEFAULT_STRATEGY = "balanced"  # the strategy of a request that names none; `strategies` lists them all

Smt: TypeAlias = int | Literal["auto", "all"]
"""Hardware threads to use per core: at most a number, all, or the machine's default (auto)."""


class Compat(Record):
    """The framework whose variables were read (--compat), and what follows from them besides the fields.

    `read` has a text for each value that was read, `others` has texts about the other variables, `warnings`
    about values that have no effect. `divided` is the note if several ranks share a domain of the strategy,
    `workers` the hint if the mask of the framework has several parts for one rank. `variables` are (name,
    value) pairs for ranks whose user does not set these variables.
    """

    framework: str
    read: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    divided: str = ""
    workers: str = ""
    variables: tuple[tuple[str, str], ...] = ()


class DeviceWord(Record):
    """How a variable names a device: `word` is one or more items of the value, as "0", "GPU-46f77619-…"."""

    device: str
    variable: str
    word: str


class VisibleDevices(Record):
    """The devices that ranks may get, in device order; the order in a variable of the vendor counts.

    `words` name the GPUs in the variables that their vendors read; a GPU without words cannot be given to a
    rank by a variable. `remarks` say what is not visible and why.
    """

    devices: tuple[Device, ...] = ()
    words: tuple[DeviceWord, ...] = ()
    remarks: tuple[str, ...] = ()


class UsedFile(Record):
    """A configuration file that was read; `kind` is user, project, or named (by --config)."""

    kind: str
    path: str
    sha256: str


class IgnoredFile(Record):
    """A configuration file that was found but is not used, and why."""

    kind: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} is ignored: {self.reason}"


class Configuration(Record):
    """The configuration files that were read, lowest precedence first, and the preset ("" for none).

    `preset_file` is the path of the file that defines the preset. `warnings` are texts for the user.
    """

    files: tuple[UsedFile, ...] = ()
    ignored: tuple[IgnoredFile, ...] = ()
    preset: str = ""
    preset_file: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A short hash of all that was read; "" if nothing was read. Paths do not count."""
        if not self.files:
            return ""
        from hashlib import sha256  # noqa: PLC0415 - door: loads OpenSSL

        text = "\n".join((*(file.sha256 for file in self.files), self.preset))
        return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


class Request(Record):
    """One placement request; `threads` None means one per CPU.

    `cores` are the cores of each rank that compute, None for a share by the strategy. `reserve` and
    `service_cores` are cores per rank, `reserve_total` cores of the machine. `service_total` are service CPUs
    of all ranks together, or of each of the `replicas` with as many ranks each, `service_each` of each rank;
    with `service_optional`, a rank without enough CPUs has fewer. The `processes_per_rank` that the command
    starts divide the threads of the rank. `nodes` is a mask of NUMA nodes: if `mask` names no CPUs, ranks get
    the CPUs of these nodes, in this order. Without `bind_given`, isolated CPUs of ranks change Bind.RANK into
    Bind.THREAD. With `hold`, a run does not let threads leave the CPUs of their rank.

    `workload` is what is known about the command, `omp_runtime` the runtime that the user specified,
    `user_variables` are OpenMP variables (name, value) that ranks get instead of the plan's, `memory_bytes`
    is the memory that each rank will need (0: unknown), and `unfilled` a text about placeholders that stay.
    `in_unlimited_pod`: in Kubernetes, and neither limits there nor options say how many CPUs ranks have.
    `container` is the number of a container that does not see others on its CPUs, 0 if there is none; cores
    before the row `start` are the last ones.

    `outside_ranks` have a part of the CPU quota and of the devices, but are not in this plan: a launcher has
    bound them to other CPUs. `local_ranks` are then the local ranks of the ranks in this plan. With
    `has_own_devices`, the launcher has given this rank devices of its own. `job_cpus` is the number of CPUs
    that a batch system allows, where it binds nothing. `requested_cpus` are the hardware threads that the
    user has requested from the launcher for these ranks, 0 if unknown, or with --smt.

    `devices` are the kinds of devices that ranks get, `devices_per_rank` how many of each kind (None: an
    equal share). `near` names devices: ranks only get CPUs near them. `visible` are the devices that ranks
    may get, None if no device was read. `group` is the name of the group in a run with several commands.
    """

    ranks: int | Literal["auto"] = 1
    mask: Mask | None = None
    strategy: str = DEFAULT_STRATEGY
    smt: Smt = "auto"
    sibling: Literal["first", "last"] = "first"
    threads: int | None = None
    processes_per_rank: int = 1
    reserve: int = 0
    reserve_total: int = 0
    cores: int | None = None
    service_cores: int = 0
    service_total: int = 0
    service_each: int = 0
    replicas: int = 1
    service_optional: bool = False
    bind: Bind = Bind.RANK
    bind_given: bool = False
    proc_bind: ProcBind = ProcBind.CLOSE
    hold: Hold | None = None
    memory: MemoryMode = MemoryMode.LOCAL
    core_kind: CoreChoice = "all"
    sharing: Sharing = Sharing.WARN
    allow_partial: bool = False
    strict: bool = False
    omp_runtime: OmpRuntime | None = None
    workload: Workload | None = None
    user_variables: tuple[tuple[str, str], ...] = ()
    nodes: Mask | None = None
    compat: Compat | None = None
    memory_bytes: int = 0
    in_unlimited_pod: bool = False
    container: int = 0
    start: int = 0
    outside_ranks: int = 0
    local_ranks: tuple[int, ...] = ()
    job_cpus: JobCpus | None = None
    requested_cpus: int = 0
    configuration: Configuration = Configuration()
    devices: tuple[Literal[DeviceKind.GPU, DeviceKind.NIC], ...] | Literal["auto"] = ()
    devices_per_rank: int | None = None
    share_devices: bool = False
    near: tuple[str, ...] = ()
    visible: VisibleDevices | None = None
    has_own_devices: bool = False
    unfilled: str = ""
    group: str = ""

    @property
    def rank_count(self) -> int | None:
        """The number of ranks, None if the strategy, the mask or the devices decide it (auto)."""
        return None if self.ranks == "auto" else self.ranks

    @property
    def share(self) -> bool:
        """Whether ranks may share CPUs with each other and with other runs."""
        return self.sharing is Sharing.SHARE

    @property
    def sets_waiting(self) -> bool:
        """Whether the user sets how waiting OpenMP threads behave."""
        return any(name in WAIT_VARIABLES for name, _ in self.user_variables)

    @property
    def outside_device_ranks(self) -> int:
        """How many ranks outside the plan get a part of the visible devices."""
        return 0 if self.has_own_devices else self.outside_ranks

    @property
    def other_cores(self) -> int:
        """The cores per rank that do not compute: service cores and reserved cores."""
        return self.service_cores + self.reserve

    @property
    def has_service_cpus(self) -> bool:
        """Whether ranks have service CPUs besides their service cores."""
        return bool(self.service_total or self.service_each)

    @property
    def has_service(self) -> bool:
        """Whether ranks have CPUs on which no OpenMP worker runs."""
        return bool(self.service_cores) or self.has_service_cpus

    @property
    def names_each_rank(self) -> bool:
        """Whether the mask has a part for every rank, so that no strategy is used."""
        return self.mask is not None and len(self.mask.parts) > 1

    @property
    def names_cpus(self) -> bool:
        """Whether a mask names the CPUs or NUMA nodes to use."""
        return bool(self.mask and self.mask.parts) or self.nodes is not None

    @property
    def is_unbound(self) -> bool:
        """Whether the mask is `none`: every rank may use all CPUs, as these `effective` values say."""
        return self.mask is not None and self.mask.word is MaskWord.NONE

    @property
    def effective_strategy(self) -> str:
        """The strategy that divides the cores."""
        return "all" if self.is_unbound else self.strategy

    @property
    def effective_smt(self) -> Smt:
        """The hardware threads to use per core."""
        return "all" if self.is_unbound else self.smt

    @property
    def effective_bind(self) -> Bind:
        """How OpenMP threads are bound."""
        return Bind.NONE if self.is_unbound else self.bind

    @property
    def needs_strategy(self) -> bool:
        """Whether a strategy chooses the CPUs of ranks: no mask names the CPUs of each rank."""
        return not (self.names_each_rank or self.is_unbound)

    def check(self) -> None:
        """Raise TypeError for values of other types, RequestError if no machine could satisfy the request."""
        self.check_types(_HINTS)
        for name, least in _LEAST.items():
            if isinstance(value := getattr(self, name), int) and value < least:
                raise RequestError(f"{name}={value} is too low", hint=f"use {least} or more")
        for is_wrong, message, hint in _find_contradictions(self):
            if is_wrong:
                raise RequestError(message, hint=hint)


Requests: TypeAlias = Request | Sequence[Request]  # the request of a run, or the requests of its groups


def list_requests(request: Requests) -> tuple[Request, ...]:
    """Return the requests of the groups of a run, or its only request."""
    return (request,) if isinstance(request, Request) else tuple(request)


def change_requests(request: Requests, **changes: Any) -> Requests:
    """Return the request, or the requests of all groups, with some other fields."""
    changed = [each.replace(**changes) for each in list_requests(request)]
    return changed[0] if isinstance(request, Request) else changed


def _find_contradictions(request: Request) -> tuple[tuple[object, str, str], ...]:
    nodes, chooses = request.nodes, "gives each rank all CPUs"
    if request.names_each_rank:
        chooses = "gives each rank its CPUs"
    return (
        ((request.rank_count or 1) > RANK_LIMIT, f"cannot plan {request.ranks} ranks",
         f"use 1 to {RANK_LIMIT} ranks"),
        (nodes and not _names_nodes(nodes), f"nodes={nodes and nodes.text!r} is not one list of NUMA nodes",
         "name the NUMA nodes of all ranks in one part: node:#NUMBER for each"),
        (request.reserve and request.reserve_total, "--reserve and --reserve-total contradict each other",
         "use --reserve for cores per rank, or --reserve-total for cores of the whole machine"),
        (request.has_service and request.bind is Bind.EXACT,
         "--bind exact leaves no thread that could use service CPUs",
         "use --bind thread: it binds all OpenMP threads but the initial thread"),
        (request.cores and not request.needs_strategy, f"--cores has no effect: the mask {chooses}",
         "omit --cores, or write a mask without '|', which the strategy divides"),
        (request.processes_per_rank > 1 and request.bind not in (Bind.RANK, Bind.NONE),
         f"--bind {request.bind} with --processes-per-rank {request.processes_per_rank}: "
         "all processes of a rank would bind their threads to the same places",
         "omit --bind: threads may then use all CPUs of their rank"),
    )  # fmt: skip


def _names_nodes(mask: Mask) -> bool:
    """Return whether a mask is one list of NUMA nodes; a number alone would be a CPU."""
    levels = {item.chain[-1].level if item.chain else None for part in mask.parts for item in part}
    has_cpus = any(item.cpus for part in mask.parts for item in part)
    return len(mask.parts) == 1 and not has_cpus and levels <= {Level.NODE, None}


_LEAST = dict.fromkeys(("ranks", "smt", "threads", "cores", "processes_per_rank", "devices_per_rank"), 1)
_LEAST |= dict.fromkeys(("reserve", "reserve_total", "service_cores", "service_total", "service_each"), 0)
_LEAST["replicas"] = 1
"""The fields that can be numbers, and their least values."""

_HINTS = {
    "mask": "parse_mask makes one", "nodes": "parse_mask makes one", "workload": "read_workload makes one",
    "compat": "read_compat makes one", "core_kind": f"use {', '.join(CORE_CHOICES)}",
}  # fmt: skip
"""What to write instead of a value of another type."""
