"""The OpenMP runtimes that tests bind: where they are, and what each does with the threads of a program.

These facts are measured, and independent of ompbind. A place is a set of CPUs.
"""

import functools
import glob
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from ompbind.cpuset import CpuSet
from tests.live.conftest import required, skip_without

UNPACKED = "OMPTEST_LLVM_ROOT"
"""Names a directory with unpacked Debian packages: only one libomp5-* can be installed at a time."""

BINDS = ("rank", "none", "thread", "core", "exact")
CRASHED = {128 + signal.SIGABRT, 128 + signal.SIGSEGV}
SOURCE = Path(__file__).with_name("regions.c")


class Runtime(NamedTuple):
    """A runtime, and its special behaviour if it binds threads.

    narrows_at_load: the initial thread is narrowed to the first place when the library is loaded, not when
    it is first used. resets: KMP_AFFINITY=reset restores the mask of the initial thread. widens_forks: a
    forked child has all CPUs with which the runtime started. crashes_forks: the heap of a forked child is
    damaged if there are places, and the child nearly always crashes.
    """

    name: str
    narrows_at_load: bool = False
    resets: bool = False
    widens_forks: bool = False
    crashes_forks: bool = False


RUNTIMES = {runtime.name: runtime for runtime in (
    Runtime("libgomp", narrows_at_load=True),
    Runtime("libgomp of torch", narrows_at_load=True),
    Runtime("libgomp of scikit-learn", narrows_at_load=True),
    Runtime("libomp 14", crashes_forks=True),
    Runtime("libomp 15", resets=True, crashes_forks=True),
    Runtime("libomp 16", resets=True, widens_forks=True),
    Runtime("libomp 19", resets=True, widens_forks=True),
    Runtime("libiomp5", resets=True, widens_forks=True),
)}  # fmt: skip
UNBOUND = frozenset({("rank", "libomp 14"), ("rank", "libomp 15")})
"""(mode, runtime) where ompbind detects the runtime in the command and sets no places."""

OPENBLAS = "OpenBLAS of numpy"
"""No OpenMP: a pool of plain threads, one per CPU, that starts when the library is loaded."""


def opposites(name):
    """Return the installed runtimes that can be loaded too; two of LLVM's or Intel's abort a process."""
    others = [other for other in (*RUNTIMES, OPENBLAS) if other != name and is_installed(other)]
    llvm = ("libomp", "libiomp")
    return [other for other in others if not (name.startswith(llvm) and other.startswith(llvm))]


IN_PACKAGES = {
    "libgomp of torch": ("torch", "torch", "lib/libgomp*.so*"),
    "libgomp of scikit-learn": ("scikit-learn", "sklearn", "../scikit_learn.libs/libgomp*.so*"),
    OPENBLAS: ("numpy", "numpy", "../numpy.libs/libscipy_openblas*.so*"),
}
"""The package of a runtime, its module, and the files of the runtime."""


def is_installed(name):
    """Return whether a runtime is installed; True if CI requires it, so that none is skipped."""
    return bool((os.environ.get("OMPTEST_ALL") and "torch" not in name) or _find(name))


@functools.cache
def path_of(name):
    """Return the file of a runtime; without it the test is skipped, or fails if CI requires all runtimes."""
    if found := sorted(_find(name)):
        return os.path.realpath(found[0])
    if name[-2:] in ("15", "16", "19"):
        return skip_without(name, f"{UNPACKED} names where its package is unpacked")
    package = "intel-openmp" if name == "libiomp5" else IN_PACKAGES.get(name, ("",))[0]
    return skip_without(name, package and f"pip install {package}")


def _find(name):
    roots = ["", *os.environ.get(UNPACKED, "").split(":")]
    patterns = {
        "libgomp": ["/usr/lib/*/libgomp.so.1", "/usr/lib64/libgomp.so.1"],
        "libiomp5": [f"{sys.prefix}/lib/libiomp5.so"],
    }.get(name, [f"{root}/usr/lib/llvm-{name.split()[-1]}/lib/libomp.so.5" for root in roots])
    if name in IN_PACKAGES:
        _, module, files = IN_PACKAGES[name]
        spec = importlib.util.find_spec(module)
        patterns = [f"{home}/{files}" for home in (spec.submodule_search_locations if spec else ())]
    return [path for pattern in patterns for path in glob.glob(pattern)]


def needs_packages(*names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        words = " ".join(missing).replace("sklearn", "scikit-learn")
        skip_without(words, f"pip install {words}")


def build_program(name, directory):
    """Compile regions.c, once for each directory, and link it with a runtime instead of the compiler's."""
    library, compiler = path_of(name), required("gcc")
    object_file, program = directory / "regions.o", directory / name.replace(" ", "-")
    if not object_file.exists():
        flags = ("-O1", "-Wall", "-Wextra", "-Werror", "-fopenmp")
        subprocess.run([compiler, *flags, "-c", SOURCE, "-o", object_file], check=True, timeout=60)
    if not program.exists():
        search = (f"-Wl,--no-as-needed,-rpath,{os.path.dirname(library)}", library)
        command = [compiler, object_file, "-o", program, *search, "-pthread", "-ldl"]
        subprocess.run(command, check=True, timeout=60)
    return program


class Pair(NamedTuple):
    """One case of regions.c: a second library, by name, loaded before or after the first region; or none."""

    order: str = "none"
    second: str = ""

    def argument(self):
        return f"{self.order} {path_of(self.second)}" if self.second else self.order


def places_of(bind, cores):
    """Return the places of a rank with these cores in a binding mode; each core is some CPUs."""
    cpus = [cpu for core in cores for cpu in core]
    whole, alone = [frozenset(cpus)], [frozenset({cpu}) for cpu in cpus]
    modes = {"rank": whole, "none": [], "exact": alone, "thread": whole + alone[1:]}
    return modes.get(bind, whole + [frozenset(core) for core in cores[1:]])


def pairs(seconds):
    """Return the case without a second library, and two cases for each second library."""
    return [Pair(), *(Pair(order, second) for second in seconds for order in ("before", "after"))]


def read_cases(output):
    """Return the output of regions.c: rank → case → kind → thread → CPUs."""
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for line in map(json.loads, output.splitlines()):
        kinds = found[line["rank"]][line["case"]]
        kinds[line["kind"]][line["thread"]] = frozenset(CpuSet.from_list(line["cpus"]))
    return found


class _SimulatedProcess:
    """The CPUs of the initial thread of a process that runs one case, as libraries are loaded and run."""

    def __init__(self, cpus, places, reset):
        self.cpus, self.places, self.reset = frozenset(cpus), places, reset
        self.threads = len(self.cpus)
        self.main, self.started = self.cpus, {}

    def start(self, runtime):
        """Start a runtime: it keeps the CPUs of its initial thread, and the places within them."""
        if runtime in self.started:
            return
        usable = [place & self.main for place in self.places if place & self.main]
        self.started[runtime] = usable, self.main
        if runtime.narrows_at_load and usable:
            self.main = usable[0]

    def run_region(self, runtime):
        self.start(runtime)
        usable, whole = self.started[runtime]
        if not usable:
            return dict.fromkeys(range(self.threads), self.main)
        self.main = whole if self.reset and runtime.resets else usable[0]
        return {thread: usable[thread * len(usable) // self.threads] for thread in range(self.threads)}

    def run_second(self, name):
        if name == OPENBLAS:
            return dict.fromkeys(range(min(self.threads, len(self.main)) - 1), self.main)
        return self.run_region(RUNTIMES[name])

    def forked(self):
        """Return the CPUs of a forked child, None if it crashes."""
        bound = [(runtime, whole) for runtime, (usable, whole) in self.started.items() if usable]
        if any(runtime.crashes_forks for runtime, _ in bound):
            return None
        return next((whole for runtime, whole in bound if runtime.widens_forks), self.main)


def check_output(kinds, expected):
    """Compare the output of a program with the expected output; a damaged heap need not crash a child."""
    kinds, expected = dict(kinds), dict(expected)
    if expected.pop("fork died", None):
        codes = set(kinds.pop("fork died", ()))
        assert codes <= CRASHED if codes else kinds.pop("forked")
    assert kinds == expected


def predict_output(name, pair, cpus, places, reset):
    """Return the output that regions.c must print: kind → thread → CPUs, for a runtime with these places.

    `places` is empty when nothing is bound; `reset` says whether KMP_AFFINITY=reset is set.
    """
    first, process, output = RUNTIMES[name], _SimulatedProcess(cpus, places, reset), {}
    if first.narrows_at_load:
        process.start(first)
    output["start"] = {0: process.main}
    output["early"] = dict.fromkeys(range(3), process.main)
    if pair.order == "before":
        output["second"] = process.run_second(pair.second)
    output["region"] = process.run_region(first)
    output["initial"] = {0: process.main}
    if pair.order == "after":
        output["second"] = process.run_second(pair.second)
    output["then"] = {0: process.main}
    output["plain"] = dict.fromkeys(range(3), process.main)
    output["spawned"] = {0: process.main}
    forked = process.forked()
    output.update({"forked": {0: forked}} if forked else {"fork died": {0: frozenset()}})
    output["again"] = process.run_region(first)
    return {kind: threads for kind, threads in output.items() if threads}
