"""The OpenMP runtimes that tests bind: where they are, and what each does to the threads of a program.

What is written here is known from measuring, and independent of ompbind. A place is a set of CPUs.
"""

import functools
import glob
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.live.conftest import required

UNPACKED = "OMPBIND_LLVM_ROOT"
"""Names a folder with Debian packages unpacked: only one libomp5-* can be installed at a time."""

BINDS = ("rank", "none", "thread", "core", "exact")
CRASHED = {128 + signal.SIGABRT, 128 + signal.SIGSEGV}
SOURCE = Path(__file__).with_name("regions.c")


class Runtime(NamedTuple):
    """A runtime, and what is peculiar to it when it binds threads.

    narrows_at_load: the initial thread is narrowed to the first place when the library is loaded, not
    when it is first used; resets: KMP_AFFINITY=reset gives the initial thread its CPUs back; widens_forks:
    a fork()ed child has the CPUs again that the runtime began with; crashes_forks: the heap of
    such a child is damaged if there are places, which nearly always ends it.
    """

    name: str
    narrows_at_load: bool = False
    resets: bool = False
    widens_forks: bool = False
    crashes_forks: bool = False


_KNOWN = (
    Runtime("libgomp", narrows_at_load=True),
    Runtime("libgomp of torch", narrows_at_load=True),
    Runtime("libgomp of scikit-learn", narrows_at_load=True),
    Runtime("libomp 14", crashes_forks=True),
    Runtime("libomp 15", resets=True, crashes_forks=True),
    Runtime("libomp 16", resets=True, widens_forks=True),
    Runtime("libomp 19", resets=True, widens_forks=True),
    Runtime("libiomp5", resets=True, widens_forks=True),
)
RUNTIMES = {runtime.name: runtime for runtime in _KNOWN}
OPENBLAS = "OpenBLAS of numpy"
"""No OpenMP: a pool of plain threads, made when the library is loaded, with as many as there are CPUs."""


def is_llvm(name):
    """Tell whether a runtime is LLVM's or Intel's; two of these in a process end it."""
    return name.startswith(("libomp", "libiomp"))


def opposites(name):
    return [
        other for other in (*RUNTIMES, OPENBLAS) if other != name and not (is_llvm(name) and is_llvm(other))
    ]


def is_here(name):
    """Tell whether a runtime is installed; where CI promises all of them, none may be missed."""
    return bool(os.environ.get("OMPBIND_TEST_ALL") or _find(name))


@functools.cache
def path_of(name):
    """The file of a runtime; without it the test is skipped, or fails where CI promises it."""
    found = next(iter(sorted(_find(name))), None)
    if found is None and os.environ.get("OMPBIND_TEST_ALL"):
        raise AssertionError(f"CI must install {name}")
    if found is None:
        pytest.skip(f"there is no {name} here")
    return os.path.realpath(found)


def _find(name):
    if name == "libgomp":
        return [
            path for folder in ("/usr/lib/*", "/usr/lib64") for path in glob.glob(f"{folder}/libgomp.so.1")
        ]
    if name == "libgomp of torch":
        return _in_packages("torch", "lib/libgomp*.so*")
    if name == "libgomp of scikit-learn":
        return _in_packages("sklearn", "../scikit_learn.libs/libgomp*.so*")
    if name == OPENBLAS:
        return _in_packages("numpy", "../numpy.libs/libscipy_openblas*.so*")
    if name == "libiomp5":
        return _of_distribution("intel-openmp", "libiomp5.so")
    version = name.split()[1]
    roots = ["", *os.environ.get(UNPACKED, "").split(":")]
    return [path for root in roots for path in glob.glob(f"{root}/usr/lib/llvm-{version}/lib/libomp.so.5")]


def _in_packages(package, pattern):
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else ()
    return [path for folder in folders for path in glob.glob(f"{folder}/{pattern}")]


def _of_distribution(name, file):
    try:
        listed = importlib.metadata.files(name) or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    return [os.fspath(path.locate()) for path in listed if path.name == file]


def needs_packages(*names):
    """Skip a test without some packages of Python's, or fail where CI promises them."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing and os.environ.get("OMPBIND_TEST_ALL"):
        raise AssertionError(f"CI must install {missing}")
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")


def build_program(name, folder):
    """Compile regions.c, once for each folder, and link it with a runtime instead of the compiler's own."""
    library, compiler = path_of(name), required("gcc")
    thing, program = folder / "regions.o", folder / name.replace(" ", "-")
    if not thing.exists():
        _do([compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-c", SOURCE, "-o", thing])
    if not program.exists():
        there = f"-Wl,--no-as-needed,-rpath,{os.path.dirname(library)}"
        _do([compiler, thing, "-o", program, there, library, "-pthread", "-ldl"])
    return program


def _do(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


class Pair(NamedTuple):
    """One case of regions.c: a second library, by name, before or after the first region; or none."""

    order: str = "none"
    second: str = ""

    def argument(self):
        """What regions.c is told."""
        return f"{self.order} {path_of(self.second)}" if self.second else self.order


def places_of(bind, cores):
    """The places that a mode of ompbind gives to a rank with these cores, each of them some CPUs."""
    cpus = [cpu for core in cores for cpu in core]
    whole, alone = [frozenset(cpus)], [frozenset({cpu}) for cpu in cpus]
    modes = {"rank": whole, "none": [], "exact": alone, "thread": whole + alone[1:]}
    return modes.get(bind, whole + [frozenset(core) for core in cores[1:]])


def pairs(seconds):
    """The case without a second library, and two for each second one."""
    return [Pair(), *(Pair(order, second) for second in seconds for order in ("before", "after"))]


def cpus_of(text):
    """The CPUs of a list, as the kernel or regions.c writes it."""
    ends = [part.split("-") for part in text.split(",") if part]
    return frozenset(cpu for pair in ends for cpu in range(int(pair[0]), int(pair[-1]) + 1))


def read_cases(output):
    """What programs told: rank → case → kind → thread → CPUs."""
    told = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for line in map(json.loads, output.splitlines()):
        kinds = told[line["rank"]][line["case"]]
        kinds[line["kind"]][line["thread"]] = cpus_of(line["cpus"])
    return told


class _Life:
    """A process that does one case: which CPUs its initial thread has as libraries come and run."""

    def __init__(self, cpus, places, reset):
        self.cpus, self.places, self.reset = frozenset(cpus), places, reset
        self.main, self.begun = self.cpus, {}

    def begin(self, runtime):
        """A runtime keeps the places that its initial thread can use then, and the CPUs of that thread."""
        if runtime in self.begun:
            return
        usable = [place & self.main for place in self.places if place & self.main]
        self.begun[runtime] = usable, self.main
        if runtime.narrows_at_load and usable:
            self.main = usable[0]

    def run_region(self, runtime):
        """The CPUs of every thread of the region."""
        self.begin(runtime)
        usable, whole = self.begun[runtime]
        threads = len(self.cpus)
        if not usable:
            return dict.fromkeys(range(threads), self.main)
        self.main = whole if self.reset and runtime.resets else usable[0]
        return {thread: usable[thread * len(usable) // threads] for thread in range(threads)}

    def run_second(self, name):
        if name == OPENBLAS:
            return dict.fromkeys(range(min(len(self.cpus), len(self.main)) - 1), self.main)
        return self.run_region(RUNTIMES[name])

    def forked(self):
        """The CPUs of a fork()ed child, None for one that crashes."""
        bound = [(runtime, whole) for runtime, (usable, whole) in self.begun.items() if usable]
        if any(runtime.crashes_forks for runtime, _ in bound):
            return None
        return next((whole for runtime, whole in bound if runtime.widens_forks), self.main)


def check_told(kinds, foretold):
    """Compare what a program told with what it must tell; a damaged heap need not end a child."""
    kinds, foretold = dict(kinds), dict(foretold)
    if foretold.pop("fork died", None):
        codes = set(kinds.pop("fork died", ()))
        assert codes <= CRASHED if codes else kinds.pop("forked")
    assert kinds == foretold


def foretell(name, pair, cpus, places, reset):
    """What regions.c tells of itself: kind → thread → CPUs, for a runtime that is told of these places.

    `places` is empty when nothing is bound; `reset` says whether KMP_AFFINITY=reset is set.
    """
    first, life, told = RUNTIMES[name], _Life(cpus, places, reset), {}
    if first.narrows_at_load:
        life.begin(first)
    told["start"] = {0: life.main}
    if pair.order == "before":
        told["second"] = life.run_second(pair.second)
    told["region"] = life.run_region(first)
    told["initial"] = {0: life.main}
    if pair.order == "after":
        told["second"] = life.run_second(pair.second)
    told["then"] = {0: life.main}
    told["plain"] = dict.fromkeys(range(3), life.main)
    told["spawned"] = {0: life.main}
    forked = life.forked()
    told.update({"forked": {0: forked}} if forked else {"fork died": {0: frozenset()}})
    told["again"] = life.run_region(first)
    return {kind: threads for kind, threads in told.items() if threads}
