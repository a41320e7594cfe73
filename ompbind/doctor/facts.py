"""All that `ompbind doctor` judges by: the machine, its kernel and settings, the environment and a command.

What cannot be read is None, "" or empty, and never an error.
"""

from collections.abc import Mapping
from enum import StrEnum

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Machine
from ompbind.planning.occupancy import LiveRun
from ompbind.planning.rank_variables import OMPBIND_RANK
from ompbind.programs.workload import Workload
from ompbind.record import Record


class Permission(StrEnum):
    """What became of a call to the kernel that was tried."""

    GRANTED = "granted"
    REFUSED = "refused"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class KernelFacts(Record):
    """The kernel's version and settings; `container` is what this is a container of, "" for none.

    `huge_pages` and `defrag` are the chosen words of transparent huge pages, `smt` that of smt/control,
    `stolen` is the share of CPU time since boot that the host of a virtual machine gave to others.
    """

    release: str = ""
    container: str = ""
    smt: str = ""
    numa_balancing: int | None = None
    huge_pages: str = ""
    defrag: str = ""
    stolen: float | None = None

    @property
    def version(self) -> tuple[int, int] | None:
        """Its first two numbers; None when the release does not begin with them."""
        words = self.release.replace("-", ".").split(".")
        numbers = [int(word) for word in words[:2] if word.isascii() and word.isdigit() and len(word) < 6]
        return (numbers[0], numbers[1]) if len(numbers) == 2 else None


class FrequencyFacts(Record):
    """How frequencies are chosen: the driver, and (word, its CPUs) of governors and of their preferences."""

    driver: str = ""
    governors: tuple[tuple[str, CpuSet], ...] = ()
    preferences: tuple[tuple[str, CpuSet], ...] = ()


class MemorySize(Record):
    """Memory of the machine, or of one NUMA node, in bytes: all, and what is free or can be at once."""

    total: int
    free: int
    node: int | None = None

    @property
    def share_free(self) -> float:
        """Its free part of it all."""
        return self.free / self.total if self.total else 1.0


class MemoryFacts(Record):
    """The memory of the machine and of its nodes, and its swap space in bytes; None where not known."""

    machine: MemorySize | None = None
    nodes: tuple[MemorySize, ...] = ()
    swap_total: int | None = None
    swap_used: int | None = None


class CommandFacts(Record):
    """The command that is meant to run; `error` tells why it cannot, and `hint` what would help.

    `arch` is what its file is for, "" for scripts. `python` is the series of its interpreter, as (3, 11),
    `isolated` tells that it ignores variables (-E, -I), `packages` are those of interest that it has.
    """

    argv: tuple[str, ...]
    error: str = ""
    hint: str = ""
    arch: str = ""
    python: tuple[int, int] | None = None
    isolated: bool = False
    cpp: bool = False
    packages: tuple[str, ...] = ()


class HostFacts(Record):
    """Everything that checks look at; `machine` is None, and `error` tells why, where none could be read.

    `affinity` and `cpuset` are what the process, and its control group, may use. `runs` are other live runs,
    None where they cannot be told. `may_bind` is of sched_setaffinity, `may_place_memory` of set_mempolicy.
    `command` is None when none was given; `preloadable` are (name, path) of libraries that could be
    preloaded, "" for those that are not found. `options` are the names of variables that are options.
    """

    env: Mapping[str, str]
    machine: Machine | None = None
    error: str = ""
    affinity: CpuSet | None = None
    cpuset: CpuSet | None = None
    may_bind: Permission = Permission.UNKNOWN
    may_place_memory: Permission = Permission.UNKNOWN
    kernel: KernelFacts = KernelFacts()
    power: FrequencyFacts = FrequencyFacts()
    memory: MemoryFacts = MemoryFacts()
    runs: tuple[LiveRun, ...] | None = None
    command: CommandFacts | None = None
    workload: Workload = Workload()
    preloadable: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()

    @property
    def inside(self) -> bool:
        """Whether this is a rank of a run already."""
        return OMPBIND_RANK in self.env
