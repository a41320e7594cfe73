"""Measure the start-up time of ompbind, and planning for a large machine.

    python benchmarks/startup.py [--rounds N]

Start-up: wall time compared with `python -c "import click"` in the same environment, without and with a
configuration file. Each round runs each command once; the ratio is the median over rounds. Planning: CPU time
of the whole command for 64 ranks on a described machine of 2,048 CPUs, including reading. Definitions: the
time to define a record of five fields, an equally strict dataclass, and a StrEnum of three values.
"""

import resource
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
from benchmarks.rounds import read_rounds
from ompbind.record import Record
from tests.machines import Shape, write_tree

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
REFERENCE = (sys.executable, "-c", "import click")
COMMANDS = {
    'python -c "import click"': REFERENCE,
    "ompbind --version": (OMPBIND, "--version"),
    "ompbind run -n 1 -- true": (OMPBIND, "run", "-n", "1", "--", "true"),
}
CONFIGURATION = """
[defaults]
memory = "local"
[preset.serve]
ranks = 4
env = { PORT = "80" }
"""
LARGE = Shape(packages=8, nodes=2, l3s=4, cores=16, smt=2)


def wall_s(command: tuple[str, ...]) -> float:
    """Run a command and return its wall time in seconds."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def cpu_s(command: tuple[str, ...]) -> float:
    """Run a command and return its user and system time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_startup(rounds: int) -> None:
    """Print the median wall time of each command and its median ratio to the reference."""
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "ompbind.toml"
        file.write_text(CONFIGURATION)
        run_with_file = (OMPBIND, "run", "--config", str(file), "-n", "1", "--", "true")
        for _ in range(rounds):
            for title, command in {**COMMANDS, "the same with ompbind.toml": run_with_file}.items():
                times.setdefault(title, []).append(wall_s(command))
    reference = next(iter(times.values()))
    for name, walls in times.items():
        ratio = statistics.median(wall / base for wall, base in zip(walls, reference, strict=True))
        print(f"{name:28} {statistics.median(walls) * 1000:7.1f} ms  {ratio:5.2f} x")


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


def main() -> None:
    """Run all measurements."""
    rounds = read_rounds(__doc__, default=31)
    measure_startup(rounds)
    measure_planning(max(3, rounds // 4))
    measure_definitions(rounds)


if __name__ == "__main__":
    main()
