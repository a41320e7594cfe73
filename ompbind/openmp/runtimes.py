"""What is known of each OpenMP runtime: one row of `OmpRuntime` has all of it, and everything else asks that.

Most of it is measured. To add a runtime, add a row: its library is then known, found and preloaded by name,
`--omp-runtime` takes it, its variables are cleared, and `ompbind probe` looks for it.
"""

from collections.abc import Callable, Collection
from enum import StrEnum
from itertools import combinations
from typing import Self

from ompbind.record import Record

STANDARD = ("OMP_PLACES", "OMP_PROC_BIND")
"""The variables of OpenMP that bind threads in every runtime."""

KMP_AFFINITY = "KMP_AFFINITY"
KMP_BINDS = ("compact", "scatter", "balanced", "explicit", "proclist", "physical", "logical")
"""Words in KMP_AFFINITY that bind threads; others only say how."""

NO_RESPECT, DISABLED = "norespect", "disabled"
"""Words of KMP_AFFINITY with which threads leave the affinity mask, and with which a runtime overlooks it."""

KMP_MODIFIERS = {"verbose", "noverbose", "warnings", "nowarnings", "respect", "reset", "noreset"}
"""Words of KMP_AFFINITY that go together with OMP_PLACES."""


class RuntimeFacts(Record):
    """What is known of one OpenMP runtime; what a row does not say is as the defaults have it."""

    # What --preload calls its library; what its files are called before any number (the first one is its
    # label); what files begin with that only look like it; by which names the dynamic linker finds it.
    library: str
    stems: tuple[str, ...]
    plugins: tuple[str, ...] = ()
    sonames: tuple[str, ...]

    # What to install; where it may lie beside the usual folders, and in those of packages of a Python; for
    # which architectures it is (none: for all); which packages of Python load the system's one; what
    # becomes faster with it.
    packages: str
    folders: tuple[str, ...] = ()
    package_folders: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()
    worth_preloading: str = ""

    # The variables of its own that would move or narrow threads. Of these, the one that lists CPUs, which it
    # obeys outside the affinity mask, too, unless one of STANDARD is there; those that narrow even the
    # initial thread; whether KMP_AFFINITY beats STANDARD.
    clears: tuple[str, ...] = ()
    cpu_list: str = ""
    subsets: tuple[str, ...] = ()
    reads_kmp_affinity: bool = False

    # Variables, each with words that let waiting threads keep their CPUs busy; the most bytes of OMP_PLACES.
    spins: tuple[tuple[str, tuple[str, ...]], ...] = ()
    places_limit: int | None = None

    # Whose versions are told. A folder of this name and a number tells one; else names that its file exports
    # do, newest first, of which a file that lacks the last one tells nothing.
    project: str = ""
    version_folder: str = ""
    version_names: tuple[tuple[str, int], ...] = ()

    # The version from which on it knows KMP_AFFINITY=reset (None: none does); the one from which on children
    # that it forks do not crash when it has places; whether loading it moves the initial thread to its first
    # place.
    resets_from: int | None = None
    forks_safely_from: int = 0
    narrows_at_load: bool = False

    # Runtimes that it cannot be preloaded with, since one takes the other's calls; those with which it ends
    # the process, and what is said then. One row of the two says it. The file that a process of it leaves.
    not_preloaded_with: tuple[str, ...] = ()
    ends_beside: tuple[str, ...] = ()
    end_message: str = ""
    leaves: str = ""


_KMP_CLEARS = (
    KMP_AFFINITY, "KMP_HW_SUBSET", "KMP_PLACE_THREADS", "KMP_TOPOLOGY_METHOD", "KMP_HIDDEN_HELPER_AFFINITY",
    "KMP_ALL_THREADS", "KMP_DEVICE_THREAD_LIMIT", "KMP_TEAMS_THREAD_LIMIT", "KMP_DYNAMIC_MODE",
)  # fmt: skip

_KMP = RuntimeFacts(
    library="",
    stems=(),
    sonames=(),
    packages="",
    clears=_KMP_CLEARS,
    subsets=("KMP_HW_SUBSET", "KMP_PLACE_THREADS"),
    reads_kmp_affinity=True,
    spins=(("KMP_LIBRARY", ("turnaround",)), ("KMP_BLOCKTIME", ("infinite", "infinity"))),
    not_preloaded_with=("gomp",),
    end_message="OMP: Error #15",
    leaves="/dev/shm/__KMP_REGISTERED_LIB_{pid}_{uid}",
)
"""What the runtimes of LLVM and Intel have in common, which are of one origin."""


# what it says of itself is the same in all versions
_LLVM_NAMES = (("__kmpc_fork_call_if", 16), ("omp_in_explicit_task", 15), ("__kmpc_fork_call", 14))


class OmpRuntime(StrEnum):
    """The OpenMP runtimes by the words of --omp-runtime, each with all that is known of it."""

    facts: RuntimeFacts

    def __new__(cls, word: str, facts: RuntimeFacts = _KMP) -> Self:
        """Make a row; the default is for type checkers alone, which take OmpRuntime("gomp") for that."""
        made = str.__new__(cls, word)
        made._value_ = word
        made.facts = facts
        return made

    GOMP = (
        "gomp",
        RuntimeFacts(
            library="gomp",
            stems=("libgomp",),
            plugins=("libgomp-plugin",),
            sonames=("libgomp.so.1",),
            packages="libgomp1 (Debian, Ubuntu), libgomp (Fedora, conda)",
            used_by=("torch", "sklearn"),
            clears=("GOMP_CPU_AFFINITY",),  # libomp reads it, too, and prefers it to OMP_PLACES
            cpu_list="GOMP_CPU_AFFINITY",
            spins=(("GOMP_SPINCOUNT", ("infinite", "infinity")),),
            narrows_at_load=True,
        ),
    )
    LLVM = (
        "llvm",
        _KMP.replace(
            library="omp",
            stems=("libomp", "libomp5"),
            sonames=("libomp.so.5", "libomp.so"),
            packages="libomp5 (Debian, Ubuntu), libomp (Fedora), llvm-openmp (conda)",
            folders=("/usr/lib/llvm-*/lib",),
            project="LLVM",
            version_folder="llvm-",
            version_names=_LLVM_NAMES,
            resets_from=15,
            forks_safely_from=16,
        ),
    )
    INTEL = (
        "intel",
        _KMP.replace(
            library="iomp",
            stems=("libiomp5",),
            sonames=("libiomp5.so",),
            packages="intel-openmp (pip and conda; x86 only)",
            package_folders=("intel_openmp*/lib",),
            architectures=("x86_64", "i686", "i386", "x32"),
            worth_preloading="small parallel regions took 1.6 times as long in libgomp as in libiomp5",
            places_limit=4000,  # it stops reading at about 4,085
            resets_from=0,
            ends_beside=("llvm",),
        ),
    )

    @property
    def label(self) -> str:
        """What people call it: the stem of its files."""
        return self.facts.stems[0]

    def resets(self, version: int | None) -> bool:
        """Tell whether a version knows KMP_AFFINITY=reset; one that is not told is taken for a new one."""
        since = self.facts.resets_from
        return since is not None and (version is None or version >= since)

    def forks_safely(self, version: int | None) -> bool:
        """Tell whether children that a version forks survive it having places."""
        return version is None or version >= self.facts.forks_safely_from

    def name_version(self, version: int | None) -> str:
        """Name one of its versions, as in "LLVM 16"."""
        return f"{self.facts.project} {version}"

    def name_before(self, version: int | None) -> str:
        """Name its versions before one, as in "libomp before LLVM 16"; where that is none, name it alone."""
        return f"{self.label} before {self.name_version(version)}" if version else self.label

    def runs_on(self, architecture: str) -> bool:
        """Tell whether it is made for an architecture."""
        return not self.facts.architectures or architecture in self.facts.architectures


KMP_READERS = tuple(one for one in OmpRuntime if one.facts.reads_kmp_affinity)
CPU_LISTS = tuple(one.facts.cpu_list for one in OmpRuntime if one.facts.cpu_list)
SUBSETS = tuple(dict.fromkeys(name for one in OmpRuntime for name in one.facts.subsets))
SPINS = (
    ("OMP_WAIT_POLICY", ("active",)),
    *dict.fromkeys(spin for one in reversed(OmpRuntime) for spin in one.facts.spins),
)
CLEARED = tuple(dict.fromkeys(name for one in OmpRuntime for name in one.facts.clears))
"""The runtimes that read KMP_AFFINITY, and the variables of all runtimes, by the fields of RuntimeFacts."""


def find_ending(there: Collection[OmpRuntime | None]) -> tuple[OmpRuntime, OmpRuntime, str] | None:
    """Return the first two of some runtimes that end a process which has both, and what they say then."""
    pair = _find_pair(there, lambda one: one.facts.ends_beside)
    return (*pair, pair[0].facts.end_message or pair[1].facts.end_message) if pair else None


def find_intercepting(there: Collection[OmpRuntime | None]) -> tuple[OmpRuntime, OmpRuntime] | None:
    """Return the first two of some runtimes of which one takes the other's calls where both are preloaded."""
    return _find_pair(there, lambda one: one.facts.not_preloaded_with)


def _find_pair(
    there: Collection[OmpRuntime | None], rivals: Callable[[OmpRuntime], tuple[str, ...]]
) -> tuple[OmpRuntime, OmpRuntime] | None:
    pairs = combinations((one for one in OmpRuntime if one in there), 2)
    return next(((one, other) for one, other in pairs if one in rivals(other) or other in rivals(one)), None)
