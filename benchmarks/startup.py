"""Measure the start-up time of ompbind, and planning for a large machine.

    python benchmarks/startup.py [--rounds N]

Start-up: wall time compared with `python -c "import click"` in the same environment. Each round runs each
command once, in rotating order; the ratio is the median over rounds. Each command runs in an empty directory,
and `run` once more with an ompbind.toml. `exec` is also measured in a job of 32 ranks of MPICH's hydra, if it
is installed. The exit code is 1 if a promise is missed.

Planning: CPU time of the whole command for 64 ranks on a described machine of 2,048 CPUs, including reading.
Definitions: the time to define a record of five fields, an equally strict dataclass, and a StrEnum of three
values.
"""

import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import CodeType

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.promises import IMPORT_CLICK, IN_JOB, make_startup_promises, median_ratio, print_promises
from benchmarks.rounds import read_rounds
from ompbind.record import Record
from tests.machines import Shape, write_tree

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
FILE = "ompbind.toml"
RUN = (OMPBIND, "run", "-n", "1", "--", "true")
COMMANDS = {
    IMPORT_CLICK: (sys.executable, "-c", "import click"),
    "--version": (OMPBIND, "--version"),
    "run": RUN,
    f"run, {FILE}": (*RUN[:2], "--config", FILE, *RUN[2:]),
    "exec": (OMPBIND, "exec", "--", "true"),
}
"""Commands by name: a Python, and verbs of ompbind. A name with a file is measured in a directory with it."""

if HYDRA := shutil.which("mpiexec.hydra"):
    JOB = (HYDRA, "-n", "32")
    RANK = (OMPBIND, "exec", "--strategy", "all", "--share", "--quiet", "--", "true")
    COMMANDS |= {
        IN_JOB.format(IMPORT_CLICK): (*JOB, *COMMANDS[IMPORT_CLICK]),
        IN_JOB.format("exec"): (*JOB, *RANK),
    }

CONFIGURATION = """
[defaults]
memory = "local"
[preset.serve]
ranks = 4
env = { PORT = "80" }
"""
LARGE = Shape(packages=8, nodes=2, l3s=4, cores=16, smt=2)


def wall_s(command: tuple[str, ...], directory: Path) -> float:
    """Run a command in a directory and return its wall time in seconds."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=directory)
    return time.perf_counter() - begin


def cpu_s(command: tuple[str, ...]) -> float:
    """Run a command and return its user and system time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_startup(rounds: int) -> int:
    """Print the median wall time of each command and its ratio to IMPORT_CLICK; return the exit code."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as configured:
        Path(configured, FILE).write_text(CONFIGURATION)
        names = list(COMMANDS)
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                directory = configured if name.endswith(FILE) else empty
                times[name].append(wall_s(COMMANDS[name], Path(directory)))
    for name, walls in times.items():
        job = IN_JOB.format(IMPORT_CLICK)
        ratio = median_ratio(walls, times[job if name.endswith(IN_JOB.format("")) else IMPORT_CLICK])
        print(f"{name:45} {statistics.median(walls) * 1000:7.1f} ms  {ratio:5.2f} x")
    return print_promises(make_startup_promises(times))


def measure_planning(rounds: int) -> None:
    """Print the median CPU time of a plan on the large machine, from a directory and from an archive."""
    with tempfile.TemporaryDirectory() as name:
        directory = write_tree(Path(name) / "machine", LARGE)
        archive = Path(name) / "machine.tar.gz"
        with tarfile.open(archive, "w:gz", format=tarfile.GNU_FORMAT) as packed:
            packed.add(directory, arcname="machine")
        for source in (directory, archive):
            command = (OMPBIND, "plan", "-n", "64", "--topology", str(source))
            spent = statistics.median(cpu_s(command) for _ in range(rounds))
            print(f"ompbind plan -n 64, 2,048 CPUs from {source.name:14} {spent * 1000:7.1f} ms of CPU time")


def measure_definitions(rounds: int) -> None:
    """Print the median time to define a record and comparable classes."""
    fields = "\n    ".join(("a: int", "b: str", "c: tuple[int, ...]", "d: int = 0", "e: int = 1"))
    strict = "frozen=True, slots=True, kw_only=True"
    words = "\n    ".join(f"{name} = {name.lower()!r}" for name in ("CLOSE", "SPREAD", "NONE"))
    sources = {
        "dataclass": f"@dataclass({strict})\nclass Made:\n    {fields}",
        "Record": f"class Made(Record):\n    {fields}",
        "StrEnum": f"class Made(StrEnum):\n    {words}",
    }
    for name, source in sources.items():
        code = compile(source, name, "exec")
        spent = statistics.median(definition_s(code) for _ in range(rounds * 10))
        print(f"defining a {name:10} {spent * 1e6:7.1f} us")


def definition_s(code: CodeType) -> float:
    """Define a class once and return the time in seconds."""
    names = {"dataclass": dataclass, "Record": Record, "StrEnum": StrEnum, "__name__": "made"}
    begin = time.perf_counter()
    exec(code, names)
    return time.perf_counter() - begin


def main() -> int:
    """Run all measurements; return 1 if a promise is missed."""
    rounds = read_rounds(__doc__, default=31)
    code = measure_startup(rounds)
    print()
    measure_planning(max(3, rounds // 4))
    measure_definitions(rounds)
    return code


if __name__ == "__main__":
    sys.exit(main())
