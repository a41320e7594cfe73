"""Measure two runs of GROMACS that bind themselves, one CPU each: with --hold and without.

    python benchmarks/gmx.py [--rounds N] [--steps N]

`gmx mdrun -pin on` binds its threads to the first CPUs of the machine, so that two runs compute on the same
CPUs, unless ompbind holds each on its own. The work is a box of 884 molecules of water. Each round starts
both variants, in alternating order; the two ranks of a run compute at the same time. The speed is the sum of
both ranks in ns/day, from md.log, and the promise is about its ratio within rounds.

It takes gmx (Debian: gromacs) and two cores. The exit code is 1 if the promise is missed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.promises import make_gmx_promise, print_promises
from benchmarks.quiet import OMPBIND
from benchmarks.rounds import compile_modules, make_parser

VARIANTS: Mapping[str, tuple[str, ...]] = {"without": (), "--hold": ("--hold",)}

TOPOLOGY = """
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
water
[ molecules ]
"""
PARAMETERS = """
integrator = md
coulombtype = PME
tcoupl = v-rescale
tc-grps = System
tau-t = 1
ref-t = 300
gen-vel = yes
gen-seed = 1
"""
PERFORMANCE = re.compile(r"^Performance: +([\d.]+)", re.MULTILINE)


def make_input(directory: Path) -> None:
    """Write run.tpr, a box of water with molecules of GROMACS, and a directory for each rank."""
    for rank in "01":
        (directory / rank).mkdir()
    (directory / "run.mdp").write_text(PARAMETERS)
    (directory / "run.top").write_text(TOPOLOGY)
    for command in (
        "gmx solvate -cs spc216.gro -box 3 3 3 -o run.gro -p run.top",
        "gmx grompp -f run.mdp -c run.gro -p run.top -o run.tpr",
    ):
        subprocess.run(command.split(), cwd=directory, check=True, capture_output=True)


def make_command(steps: int, *options: str) -> list[str]:
    """Return the command of two ranks that bind themselves, for the directory of run.tpr, 0 and 1."""
    mdrun = f"gmx mdrun -pin on -ntmpi 1 -ntomp 1 -s ../run.tpr -noconfout -nsteps {steps}"
    own = ("-q", "-n", "2", "-c", "1", "--share", "--chdir", "{rank}", *options)
    return [OMPBIND, "run", *own, "--", *mdrun.split()]


def read_speed(directory: Path) -> float:
    """Return the sum of both ranks in ns/day, from what they have written last."""
    logs = ((directory / rank / "md.log").read_text() for rank in "01")
    return sum(float(PERFORMANCE.findall(log)[-1]) for log in logs)


def main() -> int:
    """Measure both variants; return 1 if the promise is missed."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    compile_modules()
    if not shutil.which("gmx") or len(os.sched_getaffinity(0)) < 2:
        print("Nothing is measured: this takes gmx and two cores.")
        return 0
    speeds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory(prefix="gmx") as name:
        directory = Path(name)
        make_input(directory)
        for number in range(options.rounds):
            for variant in list(VARIANTS)[:: -1 if number % 2 else 1]:
                command = make_command(options.steps, *VARIANTS[variant])
                subprocess.run(command, cwd=directory, check=True, capture_output=True)
                speeds[variant].append(read_speed(directory))
    for variant, found in speeds.items():
        print(f"{variant:8} {median(found):6.1f} ns/day of both ranks ({min(found):.1f} to {max(found):.1f})")
    return print_promises([make_gmx_promise(speeds["without"], speeds["--hold"])])


if __name__ == "__main__":
    sys.exit(main())
