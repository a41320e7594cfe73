"""Shared libraries that decide where threads run and how many there are: the known ones, and their search.

File names show which library a file is. A *runtime* creates and binds OpenMP threads. A *BLAS* has its own
threads or uses a runtime. A *pool* has threads of its own. An *allocator* replaces malloc and is often
preloaded. Wheels add a hash to the names of the libraries that they bundle: `libgomp-e985bcbb.so.1.0.0`.

Files are searched as the dynamic linker does it. The order of directories is that of ld.so(8): RPATH of the
file and of the files that need it, unless the file has a RUNPATH; LD_LIBRARY_PATH; RUNPATH; /etc/ld.so.conf;
the default directories.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from glob import glob
from itertools import product

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs.elf import SYSTEM_LIBRARY_PREFIXES, Elf, read_header
from ompbind.record import Record
from ompbind.text import whole_number

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
    """One kind of library that ompbind recognizes; `name` is its name in options ("tcmalloc").

    `stems` are the beginnings of its file names, up to a hash or ".so".
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

_BLAS, _ALLOCATOR, _POOL = LibraryRole.BLAS, LibraryRole.ALLOCATOR, LibraryRole.POOL
_KINDS: tuple[tuple[str, LibraryRole, tuple[str, ...], OmpRuntime | None], ...] = (
    *((each.facts.library, LibraryRole.RUNTIME, each.facts.stems, each) for each in OmpRuntime),
    ("openblas", _BLAS, _OPENBLAS, None),
    ("blis", _BLAS, ("libblis", "libblis-mt"), None),
    ("mkl", _BLAS, tuple(f"libmkl_{suffix}" for suffix in _MKL_SUFFIXES), None),
    ("tbb", _POOL, ("libtbb", "libtbb12"), None),
    ("openvino", _POOL, ("libopenvino",), None),
    ("hpx", _POOL, ("libhpx", "libhpxd"), None),
    (ONNXRUNTIME, _POOL, _ONNXRUNTIME, None),
    ("tcmalloc", _ALLOCATOR, ("libtcmalloc", "libtcmalloc_minimal"), None),
    ("jemalloc", _ALLOCATOR, ("libjemalloc",), None),
    ("mimalloc", _ALLOCATOR, ("libmimalloc",), None),
)

LIBRARY_KINDS: Mapping[str, LibraryKind] = {
    name: LibraryKind(name=name, stems=stems, role=role, family=family)
    for name, role, stems, family in _KINDS
}
"""All kinds of libraries that ompbind recognizes, by name."""

LIBRARY_PACKAGES: Mapping[str, str] = {
    "tcmalloc": "libtcmalloc-minimal4 (Debian, Ubuntu), gperftools-libs (Fedora), gperftools (conda)",
    "jemalloc": "libjemalloc2 (Debian, Ubuntu), jemalloc (Fedora, conda)",
    "mimalloc": "libmimalloc2.0 (Debian, Ubuntu), mimalloc (Fedora, conda)",
    **{runtime.facts.library: runtime.facts.packages for runtime in reversed(OmpRuntime)},
}
"""The distribution packages that contain each library of `PRELOADABLE`, by its name."""

PRELOADABLE = tuple(LIBRARY_PACKAGES)  # the names that --preload accepts

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
    """A library that a command loads or may load; `origin` is "LD_PRELOAD", a program, package or prefix."""

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
    return Library(path=path, kind=kind, version=whole_number(digits, 1000))


def name_libraries(paths: Iterable[str]) -> tuple[Library, ...]:
    """Return the known libraries among some paths, in their order, each path once."""
    found = (name_library(path) for path in dict.fromkeys(paths))
    return tuple(library for library in found if library)


_DEFAULT_DIRECTORIES = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_CONFIGURATION = "/etc/ld.so.conf"
_SYMBOL_NAMES_END = 1 << 17  # the names that a runtime exports are within so many bytes of its file


def identify_library(path: str) -> Library | None:
    """Return the known library that a file is; None if it is not known.

    The target of a link decides: some environments have a link named libgomp to another runtime. A name
    without a directory is a library that was not found.
    """
    target = os.path.realpath(path) if "/" in path else path
    library = name_library(target) or name_library(path)
    # (exported name, version that introduced it), newest first: the first that the file exports decides; a
    # file without the last, oldest name has an unknown version
    names = library.family.facts.version_names if library and library.family else ()
    if library is None or library.version is not None or not names:
        return library
    try:
        with open(library.path, "rb") as file:
            head = file.read(_SYMBOL_NAMES_END)
    except OSError:
        return library
    found = [version for name, version in names if b"\0%b\0" % name.encode() in head]
    return library.replace(version=found[0] if found and names[-1][1] in found else None)


def find_library(name: str, program: Elf | None, directories: Sequence[str]) -> str | None:
    """Return the first file with a name in some directories that `program`, if given, can load."""
    paths = (os.path.join(directory, name) for directory in directories)
    return next((path for path in paths if os.path.isfile(path) and is_loadable(path, program)), None)


def is_loadable(path: str, program: Elf | None) -> bool:
    """Return whether a file is ELF and, if `program` is given, of its architecture."""
    header = read_header(path)
    return header is not None and (program is None or header.runs_with(program))


def find_library_of_kind(name: str, program: Elf | None, directories: Sequence[str]) -> str | None:
    """Return the first library of a kind, by its name in `LIBRARY_KINDS`, in some directories."""
    for directory, stem in product(directories, LIBRARY_KINDS[name].stems):
        files = (file for file in list_names(directory) if file.startswith(stem) and ".so" in file)
        # the shortest name: libtcmalloc.so.4 before its target libtcmalloc.so.4.5.9
        for file in sorted(files, key=lambda file: (len(file), file)):
            path = os.path.join(directory, file)
            library = identify_library(path)
            is_of_kind = library is not None and library.kind.name == name
            if is_of_kind and os.path.isfile(path) and is_loadable(path, program):
                return path
    return None


def linker_directories(env: Mapping[str, str]) -> list[str]:
    """Return the directories that the dynamic linker searches after the RPATH or RUNPATH of a file."""
    configured = _read_configuration(_CONFIGURATION)
    return list(dict.fromkeys([*_library_path(env), *configured, *_DEFAULT_DIRECTORIES]))


def _library_path(env: Mapping[str, str]) -> list[str]:
    """Return the directories of LD_LIBRARY_PATH; an empty item is the current directory."""
    value = env.get("LD_LIBRARY_PATH", "").replace(";", ":")
    return [directory or "." for directory in value.split(":")] if value else []


@cache
def _read_configuration(path: str, depth: int = 8) -> tuple[str, ...]:
    """Return the directories of an ld.so.conf file and, up to a depth, of the files that it includes."""
    found: list[str] = []
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.partition("#")[0].strip() for line in file]
    except OSError:
        return ()
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "include" and depth:
            for pattern in rest.split():
                for name in sorted(glob(os.path.join(os.path.dirname(path), pattern))):
                    found += _read_configuration(name, depth - 1)
        elif line.startswith("/"):
            found.append(line)
    return tuple(found)


def list_names(directory: str) -> list[str]:
    """Return the names in a directory, in any order; none if it cannot be read."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


def find_needed_libraries(
    path: str, elf: Elf, env: Mapping[str, str], preloaded: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the libraries that a program needs directly or through other libraries, each once.

    A breadth-first walk over DT_NEEDED, as the dynamic linker does it. Yields the path of a library, or its
    name if it is not found. Skips libraries with the names in `preloaded`, which are loaded already, and
    system libraries that never need others.
    """
    # Each file with the directory that $ORIGIN stands for, and the RPATHs of the files that need it.
    queue: list[tuple[Elf, str, tuple[str, ...]]] = [(elf, os.path.dirname(os.path.realpath(path)), ())]
    seen = set(preloaded)
    while queue:
        header, origin, inherited = queue.pop(0)
        expanded = (directory.replace("${ORIGIN}", origin) for directory in header.search_path)
        own = tuple(directory.replace("$ORIGIN", origin) for directory in expanded)
        rpaths = () if header.is_runpath else (*own, *inherited)
        directories = [*rpaths, *_library_path(env), *own, *linker_directories(env)]
        for name in header.needed:
            if name in seen or name.startswith(SYSTEM_LIBRARY_PREFIXES):
                continue
            seen.add(name)
            found = name if "/" in name else find_library(name, elf, directories)
            yield found or name
            needed = read_header(found) if found else None
            if needed and found:
                queue.append((needed, os.path.dirname(os.path.realpath(found)), rpaths or inherited))
