"""What is known of a command before it starts: its Python and the OpenMP runtimes in its processes.

A *workload* is a command with the facts that its files show. A library is *preloaded*, *needed* by the
program, or *available* in the environment of its Python; only a run shows whether it is then loaded.
"""

from collections.abc import Iterator
from enum import StrEnum

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs.library_catalog import Library, LibraryRole
from ompbind.programs.wrappers import Wrapper
from ompbind.record import Record


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


class Workload(Record):
    """A command with the facts that its files show.

    `program` is the path of the file that runs, "" without a command. `python` is the path of the
    interpreter, "" for other programs; `site_packages` is its first package directory, "" if it has none.
    `opaque`: the file does not show which program will run (a shell script, `mpirun`). `static`: the
    program is statically linked and ignores LD_PRELOAD. `preload` is the new value of LD_PRELOAD, one path
    or name each; empty leaves LD_PRELOAD unchanged. `preload_warnings` say which entries will not be loaded.
    `wrappers` are the programs before the command that change the binding or the variables of the rank.
    """

    program: str = ""
    python: str = ""
    site_packages: str = ""
    opaque: bool = False
    static: bool = False
    libraries: tuple[DetectedLibrary, ...] = ()
    preload: tuple[str, ...] = ()
    preload_warnings: tuple[str, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()

    def runtimes(self) -> Iterator[DetectedLibrary]:
        """Yield the OpenMP runtimes among the libraries, surest first, each file once."""
        if not self.libraries:
            return
        order = list(DetectionMethod)
        runtimes = (found for found in self.libraries if found.library.kind.role is LibraryRole.RUNTIME)
        seen: set[str] = set()
        for found in sorted(runtimes, key=lambda found: order.index(found.method)):
            if found.library.path not in seen:
                seen.add(found.library.path)
                yield found

    def has(self, *families: OmpRuntime, method: DetectionMethod | None = None) -> bool:
        """Return whether a runtime of one of these families is expected, by `method` if it is given."""
        return any(
            found.library.family in families and method in (None, found.method) for found in self.runtimes()
        )
