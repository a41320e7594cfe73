"""Shared libraries that decide where threads run and how many there are, recognized by their file names.

A *runtime* creates and binds OpenMP threads. A *BLAS* has its own threads or uses a runtime. A *pool* has
threads of its own. An *allocator* replaces malloc and is often preloaded. Wheels add a hash to the names of
the libraries that they bundle: `libgomp-e985bcbb.so.1.0.0`.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.record import Record

ONNXRUNTIME = "onnxruntime"
"""The name of a pool that binds its threads, unless the program gives it a number of threads."""

ONNXRUNTIME_BINDS = (
    "a session without a number of threads starts one for each core of the machine, bound to it"
)
ONNXRUNTIME_REMEDY = "set SessionOptions.intra_op_num_threads, in a rank to OMPBIND_NUM_THREADS"


class LibraryRole(StrEnum):
    """What a library is for."""

    RUNTIME = "runtime"
    BLAS = "blas"
    ALLOCATOR = "allocator"
    POOL = "pool"


class LibraryKind(Record):
    """One kind of library that ompbind recognizes.

    `name` is its name in options ("tcmalloc"). `stems` are the beginnings of its file names, up to a hash
    or ".so". `family` is the OpenMP runtime that it is, None for other libraries.
    """

    name: str
    stems: tuple[str, ...]
    role: LibraryRole
    family: OmpRuntime | None = None

    @property
    def label(self) -> str:
        """The name for messages: the first stem ("libgomp")."""
        return self.stems[0]


_OPENBLAS = ("libopenblas", "libscipy_openblas", "libscipy_openblas64_", "libopenblas64_", "libopenblasp")
_ONNXRUNTIME = ("libonnxruntime", "onnxruntime_pybind11_state", "onnxruntime_pybind11_state.cpython")
_MKL_SUFFIXES = ("rt", "intel_thread", "gnu_thread", "tbb_thread", "sequential")

LIBRARY_KINDS: Mapping[str, LibraryKind] = {
    kind.name: kind
    for kind in (
        *(
            LibraryKind(
                name=runtime.facts.library,
                stems=runtime.facts.stems,
                role=LibraryRole.RUNTIME,
                family=runtime,
            )
            for runtime in OmpRuntime
        ),
        LibraryKind(name="openblas", stems=_OPENBLAS, role=LibraryRole.BLAS),
        LibraryKind(name="blis", stems=("libblis", "libblis-mt"), role=LibraryRole.BLAS),
        LibraryKind(
            name="mkl", stems=tuple(f"libmkl_{suffix}" for suffix in _MKL_SUFFIXES), role=LibraryRole.BLAS
        ),
        LibraryKind(name="tbb", stems=("libtbb", "libtbb12"), role=LibraryRole.POOL),
        LibraryKind(name=ONNXRUNTIME, stems=_ONNXRUNTIME, role=LibraryRole.POOL),
        LibraryKind(
            name="tcmalloc", stems=("libtcmalloc", "libtcmalloc_minimal"), role=LibraryRole.ALLOCATOR
        ),
        LibraryKind(name="jemalloc", stems=("libjemalloc",), role=LibraryRole.ALLOCATOR),
        LibraryKind(name="mimalloc", stems=("libmimalloc",), role=LibraryRole.ALLOCATOR),
    )
}
"""All kinds of libraries that ompbind recognizes, by name."""

PRELOADABLE = (
    "tcmalloc",
    "jemalloc",
    "mimalloc",
    *(runtime.facts.library for runtime in reversed(OmpRuntime)),
)
"""The names that --preload accepts."""

LIBRARY_PACKAGES: Mapping[str, str] = {
    "tcmalloc": "libtcmalloc-minimal4 (Debian, Ubuntu), gperftools-libs (Fedora), gperftools (conda)",
    "jemalloc": "libjemalloc2 (Debian, Ubuntu), jemalloc (Fedora, conda)",
    "mimalloc": "libmimalloc2.0 (Debian, Ubuntu), mimalloc (Fedora, conda)",
    **{runtime.facts.library: runtime.facts.packages for runtime in OmpRuntime},
}
"""The distribution packages that contain each library of `PRELOADABLE`, by its name."""

_KIND_BY_STEM = {stem: kind for kind in LIBRARY_KINDS.values() for stem in kind.stems}
_PLUGINS = tuple(stem for runtime in OmpRuntime for stem in runtime.facts.plugins)


class Library(Record):
    """One library file of a known kind.

    `version` is the major version of the OpenMP runtime's project (14 for LLVM 14), None if it is unknown.
    """

    path: str
    kind: LibraryKind
    version: int | None = None

    @property
    def family(self) -> OmpRuntime | None:
        """The OpenMP runtime that it is; None for other libraries."""
        return self.kind.family


class DetectionMethod(StrEnum):
    """Why a library is expected in a process, surest first."""

    PRELOADED = "preloaded"
    NEEDED = "needed"
    AVAILABLE = "available"


class DetectedLibrary(Record):
    """A library that a command loads or may load.

    `origin` names the cause: "LD_PRELOAD", a program, a Python package ("torch") or an installation prefix.
    """

    library: Library
    method: DetectionMethod
    origin: str


def name_library(path: str) -> Library | None:
    """Return the known library that a path names; None if it is not known. The file is not read."""
    path = path.removesuffix(" (deleted)")  # which /proc/PID/maps adds to the path of an unlinked file
    stem, dot, _ = path.rpartition("/")[2].partition(".so")
    kind = _KIND_BY_STEM.get(stem) or _KIND_BY_STEM.get(stem.partition("-")[0])
    if not dot or kind is None or stem.startswith(_PLUGINS):
        return None
    # a path may name the version of a runtime: 14 for /usr/lib/llvm-14/lib/libomp.so
    prefix = kind.family.facts.version_directory if kind.family else ""
    digits = path.partition(f"/{prefix}")[2].partition("/")[0] if prefix else ""
    has_version = digits.isascii() and digits.isdigit() and len(digits) < 4
    return Library(path=path, kind=kind, version=int(digits) if has_version else None)


def name_libraries(paths: Iterable[str]) -> tuple[Library, ...]:
    """Return the known libraries among some paths, in their order, each path once."""
    found = (name_library(path) for path in dict.fromkeys(paths))
    return tuple(library for library in found if library)
