"""Show the gain from binding: copies of a program at the same time, without ompbind and with ompbind.

    python benchmarks/demo.py DIRECTORY COPIES

`make demo` runs it. DIRECTORY gets the compiled program, which has many short parallel loops. Both ways run
in turn. The program measures the time of its loops, without the start of ompbind. The slowest copy counts.
"""

import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("heat.c")
LOOPS, SIDE = 300, 256
ROUNDS, LIMIT_S = 7, 10.0
"""Rounds at most, and the time after which no further round begins."""


def compile_program(path: Path) -> str:
    """Compile the program; return why that is impossible, "" otherwise."""
    if not shutil.which("gcc"):
        return "gcc is not installed"
    path.parent.mkdir(exist_ok=True)
    done = subprocess.run(["gcc", "-O2", "-fopenmp", SOURCE, "-o", path], capture_output=True, check=False)
    return "gcc cannot compile a program with OpenMP" if done.returncode else ""


def measure(command: str, env: dict[str, str]) -> float:
    """Run a command of the shell; return the seconds of the slowest copy that it starts."""
    done = subprocess.run(["sh", "-c", command], env=env, stdout=subprocess.PIPE, text=True, check=True)
    return max(map(float, re.findall(r", ([\d.]+) s,", done.stdout)))


def render(name: str, times: list[float]) -> str:
    """Return the row of the table with the median, and the shortest and longest time."""
    return f"  {name:16} {statistics.median(times):.3f} s  ({min(times):.3f} to {max(times):.3f})"


def main() -> None:
    """Compile, measure and print."""
    program, copies = Path(sys.argv[1]).resolve() / "heat", int(sys.argv[2])
    if problem := compile_program(program):
        print(f"{problem}: times with and without ompbind are not compared")
        return
    variables = ("OMP_", "GOMP_", "KMP_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(variables)}
    ompbind = Path(sys.executable).with_name("ompbind")
    copy = f"{shlex.quote(str(program))} {LOOPS} {SIDE}"
    commands = (f"{f'{copy} & ' * copies}wait", f"{shlex.quote(str(ompbind))} run -q -n {copies} -- {copy}")
    begun = time.monotonic()
    rounds: list[list[float]] = []
    while len(rounds) < ROUNDS and time.monotonic() - begun < LIMIT_S:
        rounds.append([measure(command, env) for command in commands])
    without, bound = (list(times) for times in zip(*rounds, strict=True))
    at_once = "two copies at once" if copies > 1 else "one copy"
    print(f"time of {LOOPS} short parallel loops in {at_once}, median of {len(rounds)} runs:")
    print(render("without ompbind", without), render("with ompbind", bound), sep="\n")
    ratio = statistics.median(without) / statistics.median(bound)
    print(f"Without ompbind, the loops take {ratio:.1f} times as long on this machine.")


if __name__ == "__main__":
    main()
