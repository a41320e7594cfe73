"""The launchers that launch.py compares: a table with a function per launcher that makes its command."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from ompbind.record import Record

COPIED = "/bin/true"
LAUNCHER_PREFIXES = ("SLURM", "PMI", "OMPI", "HYDRA", "PRTE", "OMPBIND")
"""Prefixes of variables that an outer launcher has set. The measured launchers must not inherit them."""

Make = Callable[[int], list[str]]
"""Returns the command of a launcher for a number of copies."""


class Unavailable(Exception):  # noqa: N818 - not an error of this program
    """A launcher or other tool is not available; the text says why."""


class Setting(Record):
    """Inputs of the launcher functions; `floor` is the compiled posix_spawn.c, None without a compiler."""

    env: Mapping[str, str]
    floor: str | None
    torchrun: str | None


def find_program(*names: str) -> str:
    """Return the path of the first of these programs on the PATH. Raises Unavailable."""
    path = next((path for path in map(shutil.which, names) if path), None)
    if path is None:
        raise Unavailable(f"no {names[0]} on the PATH")
    return path


def make_environment(directory: Path, foreign: tuple[str, ...] = LAUNCHER_PREFIXES) -> dict[str, str]:
    """Return this environment without variables of these prefixes.

    Temporary files and the run registry go to `directory`.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "SLURM_CONF" or not name.startswith(foreign)
    }
    return {**kept, "TMPDIR": str(directory), "OMPBIND_RUNTIME_DIR": str(directory)}


def compile_floor(directory: Path) -> str | None:
    """Compile posix_spawn.c into a directory and return its path; None without a compiler."""
    return compile_program("posix_spawn.c", directory, "-O2")


def compile_program(name: str, directory: Path, *options: str) -> str | None:
    """Compile a C file of this directory into `directory` and return its path; None without a compiler."""
    compiler = next((path for path in map(shutil.which, ("cc", "gcc", "clang")) if path), None)
    if compiler is None:
        return None
    source = Path(__file__).with_name(name)
    program = str(directory / source.stem)
    subprocess.run([compiler, *options, "-Wall", "-o", program, str(source)], check=True)
    return program


def make_floor(setting: Setting) -> Make:
    """Return the command of the compiled loop."""
    if setting.floor is None:
        raise Unavailable("no C compiler found (cc, gcc, clang); peak memory not measured")
    program = setting.floor
    return lambda ranks: [program, str(ranks), COPIED]


def make_loop(wrapper: str, word: Callable[[int], str]) -> Make:
    """Return a bash loop that starts wrapped commands; `word` turns a CPU into an argument of the wrapper."""
    words = " ".join(word(cpu) for cpu in sorted(os.sched_getaffinity(0)))
    each = f"{wrapper} ${{w[i % ${{#w[@]}}]}} {COPIED}"
    code = f"w=({words}); for ((i = 0; i < $0; i++)); do {each} & done; wait"
    bash = find_program("bash")
    return lambda ranks: [bash, "-c", code, str(ranks)]


def as_hwloc_set(cpu: int) -> str:
    """Return the set of one CPU in hwloc's notation: 32 bits per part."""
    return ",".join([f"0x{1 << cpu % 32:08x}", *["0x00000000"] * (cpu // 32)])


def make_openmpi(_: Setting) -> Make:
    """Return Open MPI's command. Raises Unavailable if mpirun is of another MPI."""
    start = find_openmpi()
    bound = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "core:overload-allowed"]
    return lambda ranks: [*start, *bound, "-n", str(ranks), COPIED]


def find_openmpi() -> list[str]:
    """Return the start of Open MPI's commands. Raises Unavailable if mpirun is of another MPI."""
    mpirun = find_program("mpirun.openmpi", "mpirun")
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    if "Open MPI" not in version and "OpenRTE" not in version:
        raise Unavailable(f"{mpirun} is not Open MPI's")
    return [mpirun, *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


def is_slurm_running(env: Mapping[str, str]) -> bool:
    """Return whether a Slurm controller answers."""
    sinfo = shutil.which("sinfo")
    return sinfo is not None and not subprocess.run([sinfo], env=env, capture_output=True).returncode


def make_srun(setting: Setting) -> Make:
    """Return Slurm's command. Raises Unavailable if no controller answers."""
    srun = find_program("srun")
    if not is_slurm_running(setting.env):
        raise Unavailable("no Slurm controller answers; starting it needs root, munged, slurmctld and slurmd")
    return lambda ranks: [srun, "-O", "--cpu-bind=cores", "-n", str(ranks), COPIED]


def make_torchrun(setting: Setting) -> Make:
    """Return torchrun's command."""
    path = find_torchrun(setting.torchrun or str(Path(sys.executable).with_name("torchrun")))
    return lambda ranks: [path, "--standalone", "--no-python", f"--nproc-per-node={ranks}", COPIED]


def find_torchrun(path: str) -> str:
    """Return the path of torchrun. Raises Unavailable if it is not executable."""
    if not os.access(path, os.X_OK):
        raise Unavailable("no torchrun in this environment; give its path with --torchrun PATH")
    return path


def make_hydra(_: Setting) -> Make:
    """Return MPICH's command."""
    hydra = find_program("mpiexec.hydra")
    return lambda ranks: [hydra, "-bind-to", "core", "-n", str(ranks), COPIED]


def make_ompbind(_: Setting) -> Make:
    """Return the command of the ompbind in this Python environment."""
    program = str(Path(sys.executable).with_name("ompbind"))
    return lambda ranks: [program, "run", "-q", "--share", "-n", str(ranks), "--", COPIED]


MAKERS: Mapping[str, Callable[[Setting], Make]] = {
    "floor": make_floor,
    "taskset": lambda _: make_loop(f"{find_program('taskset')} -c", str),
    "numactl": lambda _: make_loop(find_program("numactl"), lambda cpu: f"--physcpubind={cpu}"),
    "hwloc": lambda _: make_loop(find_program("hwloc-bind"), as_hwloc_set),
    "hydra": make_hydra,
    "openmpi": make_openmpi,
    "srun": make_srun,
    "torchrun": make_torchrun,
    "ompbind": make_ompbind,
}


def make_launchers(names: tuple[str, ...], setting: Setting) -> dict[str, Make]:
    """Return the launchers that are available; print a line for each other launcher."""
    launchers = {}
    for name in names:
        try:
            launchers[name] = MAKERS[name](setting)
        except Unavailable as why:
            print(f"{name}: left out, {why}")
    return launchers
