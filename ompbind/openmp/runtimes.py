"""The facts about each OpenMP runtime: a row of `OmpRuntime` for each, which all other modules read.

Most facts are measured. To add a runtime, add a row: `programs` then detects its library, `--preload` and
`--omp-runtime` accept its name, its variables are removed from ranks, and `ompbind probe` searches for it.
"""

from collections.abc import Callable, Collection
from enum import StrEnum
from itertools import combinations
from typing import Self

from ompbind.record import Record

PLACE_VARIABLES = ("OMP_PLACES", "OMP_PROC_BIND")
"""The variables of the OpenMP specification that bind threads: every runtime reads them."""

KMP_AFFINITY = "KMP_AFFINITY"
KMP_BINDS = ("compact", "scatter", "balanced", "explicit", "proclist", "physical", "logical")
"""Words of KMP_AFFINITY that bind threads; all other words are modifiers."""

NO_RESPECT, DISABLED = "norespect", "disabled"
"""Words of KMP_AFFINITY: bind threads outside the affinity mask too; do not read the affinity mask."""

KMP_MODIFIERS = {"verbose", "noverbose", "warnings", "nowarnings", "respect", "reset", "noreset"}
"""Words of KMP_AFFINITY that do not override OMP_PLACES."""


class RuntimeFacts(Record):
    """The facts about one OpenMP runtime."""

    # its library
    library: str = ""  # the name for --preload
    stems: tuple[str, ...] = ()  # file names up to the version; the first stem is the label of the runtime
    plugins: tuple[str, ...] = ()  # stems of files that are not the runtime itself
    sonames: tuple[str, ...] = ()  # names by which the dynamic linker finds it

    # where it comes from
    packages: str = ""  # what to install
    directories: tuple[str, ...] = ()  # patterns of directories that probe and doctor search too
    package_directories: tuple[str, ...] = ()  # the same below site-packages
    architectures: tuple[str, ...] = ()  # as in `uname -m`; empty: all
    used_by: tuple[str, ...] = ()  # Python packages that load the library of the system
    preload_benefit: str = ""  # what is faster if it is preloaded

    # its own variables
    cleared_variables: tuple[str, ...] = ()  # all that change which CPUs threads use: removed from ranks
    cpu_list_variable: str = ""  # lists CPUs, also outside the affinity mask; OMP_PLACES overrides it
    subset_variables: tuple[str, ...] = ()  # restrict all threads, the initial thread too
    reads_kmp_affinity: bool = False  # KMP_AFFINITY overrides OMP_PLACES
    # (variable, values) with which waiting threads spin
    spin_settings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    places_limit: int | None = None  # bytes of OMP_PLACES that it reads; None: no limit

    # how its version is found: by a directory, or else by symbols of the file
    project: str = ""  # the project that numbers the versions
    version_directory: str = ""  # the directory name before the number
    version_names: tuple[tuple[str, int], ...] = ()  # (symbol, first version with it), newest first

    # what versions do with places
    resets_from: int | None = None  # the first version that supports KMP_AFFINITY=reset; None: no version
    forks_safely_from: int = 0  # the first version in which forked children do not crash if there are places
    narrows_at_load: bool = False  # narrows the initial thread when it is loaded, not when it is first used

    # a function that returns 0 outside of parallel regions, and that never starts the runtime
    region_function: str = "omp_in_parallel"

    # conflicts, each in the row of one of the two runtimes
    not_preloaded_with: tuple[str, ...] = ()  # preloaded together, one intercepts calls to the other
    aborts_with: tuple[str, ...] = ()  # loaded together, they abort the process …
    abort_message: str = ""  # … with this message
    leftover_file: str = ""  # a file that a killed process leaves


_KMP_VARIABLES = (
    KMP_AFFINITY, "KMP_HW_SUBSET", "KMP_PLACE_THREADS", "KMP_TOPOLOGY_METHOD", "KMP_HIDDEN_HELPER_AFFINITY",
    "KMP_ALL_THREADS", "KMP_DEVICE_THREAD_LIMIT", "KMP_TEAMS_THREAD_LIMIT", "KMP_DYNAMIC_MODE",
)  # fmt: skip

_KMP = RuntimeFacts(
    cleared_variables=_KMP_VARIABLES,
    subset_variables=("KMP_HW_SUBSET", "KMP_PLACE_THREADS"),
    reads_kmp_affinity=True,
    spin_settings=(("KMP_LIBRARY", ("turnaround",)), ("KMP_BLOCKTIME", ("infinite", "infinity"))),
    # here `omp_in_parallel` starts the runtime; this function is also 0 in the initial thread of a region
    region_function="omp_get_thread_num",
    not_preloaded_with=("gomp",),
    abort_message="OMP: Error #15",
    leftover_file="/dev/shm/__KMP_REGISTERED_LIB_{pid}_{uid}",
)
"""What the runtimes of LLVM and Intel have in common: both have the same origin."""

# symbols, because the version that the library reports is the same in all releases
_LLVM_NAMES = (("__kmpc_fork_call_if", 16), ("omp_in_explicit_task", 15), ("__kmpc_fork_call", 14))


class OmpRuntime(StrEnum):
    """The OpenMP runtimes, by their names for --omp-runtime, with their facts."""

    facts: RuntimeFacts

    def __new__(cls, word: str, facts: RuntimeFacts = _KMP) -> Self:
        """Make a row; the default is for type checkers only, which check OmpRuntime("gomp") with it."""
        made = str.__new__(cls, word)
        made._value_, made.facts = word, facts
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
            cleared_variables=("GOMP_CPU_AFFINITY",),  # libomp reads it too, before OMP_PLACES
            cpu_list_variable="GOMP_CPU_AFFINITY",
            spin_settings=(("GOMP_SPINCOUNT", ("infinite", "infinity")),),
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
            directories=("/usr/lib/llvm-*/lib",),
            project="LLVM",
            version_directory="llvm-",
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
            package_directories=("intel_openmp*/lib",),
            architectures=("x86_64", "i686", "i386", "x32"),
            preload_benefit="small parallel regions take longer in libgomp",
            places_limit=4000,  # it stops reading at about 4,085
            resets_from=0,
            aborts_with=("llvm",),
        ),
    )

    @property
    def label(self) -> str:
        """Its name in messages: the stem of its file name, such as "libgomp"."""
        return self.facts.stems[0]

    def resets(self, version: int | None) -> bool:
        """Return whether a version supports KMP_AFFINITY=reset; an unknown version counts as new."""
        since = self.facts.resets_from
        return since is not None and (version is None or version >= since)

    def forks_safely(self, version: int | None) -> bool:
        """Return whether forked children of a version survive if it has places."""
        return version is None or version >= self.facts.forks_safely_from

    def render_version(self, version: int | None) -> str:
        """Return the name of a version: "LLVM 16"."""
        return f"{self.facts.project} {version}"

    def render_versions_before(self, version: int | None) -> str:
        """Return the name of all earlier versions: "libomp before LLVM 16"; only the label for 0 or None."""
        return f"{self.label} before {self.render_version(version)}" if version else self.label

    def runs_on(self, architecture: str) -> bool:
        """Return whether it exists for an architecture (as in `uname -m`)."""
        return not self.facts.architectures or architecture in self.facts.architectures


KMP_READERS = tuple(runtime for runtime in OmpRuntime if runtime.facts.reads_kmp_affinity)
CPU_LIST_VARIABLES = tuple(filter(None, (runtime.facts.cpu_list_variable for runtime in OmpRuntime)))
SUBSET_VARIABLES = tuple(dict.fromkeys(n for runtime in OmpRuntime for n in runtime.facts.subset_variables))
SPIN_SETTINGS = (
    ("OMP_WAIT_POLICY", ("active",)),
    *dict.fromkeys(setting for runtime in reversed(OmpRuntime) for setting in runtime.facts.spin_settings),
)
WAIT_VARIABLES = tuple(name for name, _ in SPIN_SETTINGS)
CLEARED_VARIABLES = tuple(dict.fromkeys(n for runtime in OmpRuntime for n in runtime.facts.cleared_variables))
"""The runtimes that read KMP_AFFINITY, and variables of all runtimes together: one for each field above."""

PASSIVE = ("GOMP_SPINCOUNT", "0")  # threads of other runtimes let other threads run while they spin
TRY_PASSIVE = "try --env OMP_WAIT_POLICY=passive in all runs on these CPUs"


def find_aborting_pair(loaded: Collection[OmpRuntime | None]) -> tuple[OmpRuntime, OmpRuntime, str] | None:
    """Return the first two of the loaded runtimes that abort a process with both, and their message."""
    pair = _find_pair(loaded, lambda runtime: runtime.facts.aborts_with)
    return (*pair, pair[0].facts.abort_message or pair[1].facts.abort_message) if pair else None


def find_intercepting_pair(loaded: Collection[OmpRuntime | None]) -> tuple[OmpRuntime, OmpRuntime] | None:
    """Return the first two of the preloaded runtimes where one intercepts calls to the other."""
    return _find_pair(loaded, lambda runtime: runtime.facts.not_preloaded_with)


def _find_pair(
    loaded: Collection[OmpRuntime | None], find_rivals: Callable[[OmpRuntime], tuple[str, ...]]
) -> tuple[OmpRuntime, OmpRuntime] | None:
    """Return the first two loaded runtimes, in the order of rows, where one names the other as a rival."""
    pairs = combinations((runtime for runtime in OmpRuntime if runtime in loaded), 2)
    rivals = (pair for pair in pairs if pair[0] in find_rivals(pair[1]) or pair[1] in find_rivals(pair[0]))
    return next(rivals, None)
