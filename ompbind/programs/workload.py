"""What is known of a command before it starts: the OpenMP runtimes, and the Python, that it will have.

A *workload* is a command as far as its files tell. A library is *preloaded*, or *needed* by the program, or
lies *available* in the environment of its Python, where only running it could tell whether it is loaded.
"""

from collections.abc import Iterator
from enum import StrEnum

from ompbind.openmp.runtimes import OmpRuntime
from ompbind.programs.library_catalog import Library, Role
from ompbind.record import Record


class How(StrEnum):
    """Why a library is expected in a process, surest first."""

    PRELOADED = "preloaded"
    NEEDED = "needed"
    AVAILABLE = "available"


class Found(Record):
    """A library that a command has or may load; `by` names what brings it, as "torch" or "LD_PRELOAD"."""

    library: Library
    how: How
    by: str


class Workload(Record):
    """A command as far as its files tell; `program` is the file that runs, "" where no command is given.

    `python` is the interpreter, "" for other programs, `site` the folder of its packages. `opaque` tells that
    the file does not say what will run, as a shell script, `static` that it has its libraries within, and
    none can be preloaded. `preload` is what LD_PRELOAD is to become, empty
    where it stays as it is; `troubles` are warnings about what is preloaded.
    """

    program: str = ""
    python: str = ""
    site: str = ""
    opaque: bool = False
    static: bool = False
    libraries: tuple[Found, ...] = ()
    preload: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()

    def runtimes(self) -> Iterator[Found]:
        """Yield the OpenMP runtimes among the libraries, surest first, each file once."""
        order = list(How)
        found = (one for one in self.libraries if one.library.kind.role is Role.RUNTIME)
        seen: set[str] = set()
        for one in sorted(found, key=lambda one: order.index(one.how)):
            if one.library.path not in seen:
                seen.add(one.library.path)
                yield one

    def has(self, *families: OmpRuntime, how: How | None = None) -> bool:
        """Tell whether a runtime of one of these families is among the libraries, or is there in one way."""
        return any(one.library.family in families and how in (None, one.how) for one in self.runtimes())
