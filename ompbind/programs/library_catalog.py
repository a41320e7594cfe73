"""Shared libraries that decide where threads run and how many there are, known by the names of their files.

A *runtime* makes and binds the threads of OpenMP, a *BLAS* has threads of its own or those of a runtime, an
*allocator* is what servers preload. Wheels put a number into the names of the copies that they carry, as in
`libgomp-e985bcbb.so.1.0.0`.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.record import Record


class Role(StrEnum):
    """What a library is for."""

    RUNTIME = "runtime"
    BLAS = "blas"
    ALLOCATOR = "allocator"
    POOL = "pool"


class Kind(Record):
    """One kind of library: what it is called, what its files are called before any number, and its role.

    `name` is what options call it, `family` tells which OpenMP runtime it is, None for other libraries.
    """

    name: str
    stems: tuple[str, ...]
    role: Role
    family: OmpRuntime | None = None

    @property
    def label(self) -> str:
        """What people call it: the stem of its files."""
        return self.stems[0]


_OPENBLAS = ("libopenblas", "libscipy_openblas", "libscipy_openblas64_", "libopenblas64_", "libopenblasp")
_MKL = ("rt", "intel_thread", "gnu_thread", "tbb_thread", "sequential")

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        *(
            Kind(name=one.facts.library, stems=one.facts.stems, role=Role.RUNTIME, family=one)
            for one in OmpRuntime
        ),
        Kind(name="openblas", stems=_OPENBLAS, role=Role.BLAS),
        Kind(name="blis", stems=("libblis", "libblis-mt"), role=Role.BLAS),
        Kind(name="mkl", stems=tuple(f"libmkl_{end}" for end in _MKL), role=Role.BLAS),
        Kind(name="tbb", stems=("libtbb", "libtbb12"), role=Role.POOL),
        Kind(name="tcmalloc", stems=("libtcmalloc", "libtcmalloc_minimal"), role=Role.ALLOCATOR),
        Kind(name="jemalloc", stems=("libjemalloc",), role=Role.ALLOCATOR),
        Kind(name="mimalloc", stems=("libmimalloc",), role=Role.ALLOCATOR),
    )
}
"""Every kind of library that is known, by its name."""

PRELOADABLE = ("tcmalloc", "jemalloc", "mimalloc", *(one.facts.library for one in reversed(OmpRuntime)))
"""What can be preloaded by name."""

PACKAGES: Mapping[str, str] = {
    "tcmalloc": "libtcmalloc-minimal4 (Debian, Ubuntu), gperftools-libs (Fedora), gperftools (conda)",
    "jemalloc": "libjemalloc2 (Debian, Ubuntu), jemalloc (Fedora, conda)",
    "mimalloc": "libmimalloc2.0 (Debian, Ubuntu), mimalloc (Fedora, conda)",
    **{one.facts.library: one.facts.packages for one in OmpRuntime},
}
"""The packages in which each of them comes."""

_BY_STEM = {stem: kind for kind in KINDS.values() for stem in kind.stems}
_PLUGINS = tuple(stem for one in OmpRuntime for stem in one.facts.plugins)
_DELETED = " (deleted)"


class Library(Record):
    """One library: its file, its kind, and the version of the family where the path or the file tells it.

    `version` is that of the project that a runtime is of, None where nothing tells it.
    """

    path: str
    kind: Kind
    version: int | None = None

    @property
    def family(self) -> OmpRuntime | None:
        """The OpenMP runtime that it is; None for other libraries."""
        return self.kind.family


def name_library(path: str) -> Library | None:
    """Return which library a file is by its name, None for one that is none of these."""
    path = path.removesuffix(_DELETED)
    stem, dot, _ = path.rpartition("/")[2].partition(".so")
    kind = _BY_STEM.get(stem) or _BY_STEM.get(stem.partition("-")[0])
    if not dot or kind is None or stem.startswith(_PLUGINS):
        return None
    return Library(path=path, kind=kind, version=_read_version(path, kind))


def _read_version(path: str, kind: Kind) -> int | None:
    """Return the version of a runtime that its path names, as in /usr/lib/llvm-14/lib."""
    mark = kind.family.facts.version_folder if kind.family else ""
    _, found, rest = path.partition(f"/{mark}") if mark else ("", "", "")
    digits = rest.partition("/")[0]
    return int(digits) if found and digits.isascii() and digits.isdigit() and len(digits) < 4 else None


def name_libraries(paths: Iterable[str]) -> tuple[Library, ...]:
    """Return those of some files that are known libraries, in their order, each file once."""
    found = (name_library(path) for path in dict.fromkeys(paths))
    return tuple(one for one in found if one)
