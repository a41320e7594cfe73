"""The facts that the checks of `ompbind doctor` use: machine, kernel and its settings, environment, command.

A fact that cannot be read is None, "" or empty, never an error.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.inspection.verdict import OthersLoad
from ompbind.machine.model import Machine
from ompbind.planning.other_runs import LiveRun
from ompbind.programs.command import Workload
from ompbind.record import Record
from ompbind.text import Severity, whole_number

UNKNOWN = "not known"  # the text of a result where the system does not provide the fact


class Permission(StrEnum):
    """The result of a system call that was tried."""

    GRANTED = "granted"
    REFUSED = "refused"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class KernelFacts(Record):
    """The kernel's release and settings; `smt` is the text of smt/control.

    `container` is the container software, such as "Docker", `hypervisor` the maker of a virtual machine.
    """

    release: str = ""
    container: str = ""
    hypervisor: str = ""
    smt: str = ""
    numa_balancing: int | None = None

    @property
    def version(self) -> tuple[int, int] | None:
        """The first two numbers of the release; None if it does not begin with two numbers."""
        major, _, rest = self.release.replace("-", ".").partition(".")
        first, second = whole_number(major), whole_number(rest.partition(".")[0])
        return None if first is None or second is None else (first, second)


class CommandFacts(Record):
    """The command to check; if it cannot run, `error` is the reason and `hint` the remedy.

    `arch` is the architecture of its file, "" for scripts. `python` is the version of its interpreter, such
    as (3, 11), which is `isolated` if it ignores variables (-E, -I). `packages` are the installed packages
    that checks know, each with the first numbers of its version, or () if that is unknown.
    """

    argv: tuple[str, ...]
    error: str = ""
    hint: str = ""
    arch: str = ""
    python: tuple[int, int] | None = None
    isolated: bool = False
    cpp: bool = False
    packages: Mapping[str, tuple[int, ...]] = {}


class HostFacts(Record):
    """All facts about this host, this environment and the command.

    `machine` is None if it could not be read; `error` is then the reason.
    `may_bind` is the permission for sched_setaffinity, `may_place_memory` for set_mempolicy. `others` is what
    other processes used of the allowed CPUs just now, `idle` are the allowed CPUs that were hardly used.
    `hold` says whether --hold works, and why not.
    `enclosing` are the rank to which
    this process belongs and its CPUs. `preloadable` are (name, path) of libraries to preload; "" is a path
    that was not found. `options` are the names of the variables that are options of ompbind,
    `unknown_options` variables that look like options, with a hint or "". `report` is (subject, text) for
    reports of faults.
    """

    env: Mapping[str, str]
    machine: Machine | None = None
    error: str = ""
    may_bind: Permission = Permission.UNKNOWN
    may_place_memory: Permission = Permission.UNKNOWN
    hold: str = UNKNOWN
    kernel: KernelFacts = KernelFacts()
    others: OthersLoad = OthersLoad()
    idle: CpuSet = EMPTY
    runs: tuple[LiveRun, ...] | None = None
    enclosing: tuple[int, CpuSet] | None = None
    command: CommandFacts | None = None
    workload: Workload = Workload()
    preloadable: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    unknown_options: tuple[tuple[str, str], ...] = ()
    report: tuple[tuple[str, str], ...] = ()


class HostIssue(Record):
    """An issue, or with severity OK a fact worth a line; `check_name` is the check that found it.

    `why` is the reason why it matters, `remedy` a command or setting that fixes it; both are "" for OK.
    """

    severity: Severity
    subject: str
    found: str
    why: str = ""
    remedy: str = ""
    check_name: str = ""


HostCheck = Callable[[HostFacts], Iterable[HostIssue]]


def ok(subject: str, found: str = UNKNOWN) -> HostIssue:
    """Make a result that needs no attention."""
    return HostIssue(severity=Severity.OK, subject=subject, found=found)


def note(subject: str, found: str, why: str, remedy: str) -> HostIssue:
    """Make an issue that is worth knowing."""
    return HostIssue(severity=Severity.NOTE, subject=subject, found=found, why=why, remedy=remedy)


def error(subject: str, found: str, why: str, remedy: str) -> HostIssue:
    """Make an issue that must be fixed."""
    return HostIssue(severity=Severity.ERROR, subject=subject, found=found, why=why, remedy=remedy)
