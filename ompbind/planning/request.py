"""What was asked for, checked as far as it can be without a machine.

A *rank* is one started copy of the command, 0 to n-1 on this machine. *Reserve* are cores kept free
of ranks, for schedulers, I/O threads and the like.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from ompbind.errors import RequestError
from ompbind.machine.model import KindName
from ompbind.masks.mask import Mask, Word
from ompbind.openmp.binding import Bind, ProcBind
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs.workload import Workload
from ompbind.record import Record

RANK_LIMIT = 1 << 16
"""More ranks than this on one machine are taken for a slip of the finger."""


class MemoryMode(StrEnum):
    """Where memory comes from: as the kernel does by itself, or by a policy for the NUMA nodes of a rank."""

    LOCAL = "local"
    BIND = "bind"
    PREFERRED = "preferred"
    INTERLEAVE = "interleave"


class Sharing(StrEnum):
    """What becomes of CPUs that other runs use: told, used in silence, left to them, or refused."""

    WARN = "warn"
    SHARE = "share"
    AVOID = "avoid"
    EXCLUSIVE = "exclusive"


DEFAULT_STRATEGY = "balanced"
"""The strategy of a request that names none; `strategies.table` has all of them."""

Smt = int | Literal["auto", "all"]
"""Hardware threads used of one core: at most a number, or all, or as the machine suggests."""


class Request(Record):
    """One placement request; `ranks` None stands for "auto", `threads` None for "as many as CPUs".

    `nodes` is a mask of NUMA nodes: where no mask names CPUs, ranks get those of these nodes, in its order.
    `workload` is what is known of the command, `omp_runtime` the runtime that it is said to have.
    `own_variables` are those of OpenMP that ranks are to have as the user says, whatever the plan is; with
    `strict` a binding that cannot hold is an error. `compat` is the framework whose variables were read, and
    the two beside it are what they said, in words: what was read from them, and what else there is to say.
    """

    ranks: int | None = 1
    mask: Mask | None = None
    strategy: str = DEFAULT_STRATEGY
    smt: Smt = "auto"
    sibling: Literal["first", "last"] = "first"
    threads: int | None = None
    reserve: int = 0
    reserve_total: int = 0
    bind: Bind = Bind.RANK
    proc_bind: ProcBind = ProcBind.CLOSE
    memory: MemoryMode = MemoryMode.LOCAL
    core_kind: KindName | Literal["all"] = "all"
    sharing: Sharing = Sharing.WARN
    allow_partial: bool = False
    strict: bool = False
    omp_runtime: OmpRuntime | None = None
    workload: Workload | None = None
    own_variables: tuple[tuple[str, str], ...] = ()
    nodes: Mask | None = None
    compat: str = ""
    compat_read: tuple[str, ...] = ()
    compat_others: tuple[str, ...] = ()

    @property
    def share(self) -> bool:
        """Tell whether ranks may share CPUs with each other, and with other runs."""
        return self.sharing is Sharing.SHARE

    @property
    def names_each_rank(self) -> bool:
        """Whether the mask has a part for every rank, so that no strategy divides anything."""
        return self.mask is not None and len(self.mask.parts) > 1

    @property
    def is_unbound(self) -> bool:
        """Whether the mask is `none`: every rank may use everything."""
        return self.mask is not None and self.mask.word is Word.NONE

    def check(self) -> None:
        """Refuse what no machine could satisfy; raises RequestError."""
        _check_kinds(self)
        if self.ranks is not None and not 1 <= self.ranks <= RANK_LIMIT:
            raise RequestError(f"{self.ranks} ranks cannot be planned", hint=f"ask for 1 to {RANK_LIMIT}")
        if self.threads is not None and self.threads < 1:
            raise RequestError(f"{self.threads} threads per rank are too few", hint="ask for at least 1")
        if self.smt not in ("auto", "all") and (type(self.smt) is not int or self.smt < 1):
            hint = "use 1 or more, 'auto' or 'all'"
            raise RequestError(f"--smt {self.smt} keeps no CPU of a core", hint=hint)
        if min(self.reserve, self.reserve_total) < 0:
            raise RequestError("a negative number of cores cannot be reserved")
        if self.reserve and self.reserve_total:
            hint = "use --reserve for cores of every rank, --reserve-total for cores of the machine"
            raise RequestError("--reserve and --reserve-total contradict each other", hint=hint)


_KINDS: Mapping[str, tuple[type, str]] = {
    "mask": (Mask, "parse_mask reads one from text"),
    "nodes": (Mask, "parse_mask reads one from text"),
    "bind": (Bind, "as in bind=Bind.THREAD"),
    "proc_bind": (ProcBind, "as in proc_bind=ProcBind.SPREAD"),
    "omp_runtime": (OmpRuntime, "as in omp_runtime=OmpRuntime.GOMP"),
    "workload": (Workload, "read_workload reads one"),
    "memory": (MemoryMode, "as in memory=MemoryMode.BIND"),
}
_WORDS = {"sibling": ("first", "last"), "core_kind": ("performance", "efficiency", "all")}


def _check_kinds(request: Request) -> None:
    """Refuse words that a program has for values, and words that mean nothing; options never have them."""
    values = request.as_dict()
    for name, (kind, hint) in _KINDS.items():
        missing = kind in (Mask, OmpRuntime, Workload) and values[name] is None
        if not missing and not isinstance(values[name], kind):
            raise RequestError(f"{name}={values[name]!r} is not a {kind.__name__}", hint=hint)
    for name, words in _WORDS.items():
        if values[name] not in words:
            raise RequestError(f"{name}={values[name]!r} is unknown", hint=f"known are {', '.join(words)}")
