"""The launchers that are measured side by side: for each name, how its command is made, if it is here."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from ompbind.record import Record

COPIED = "/bin/true"
FOREIGN = ("SLURM", "PMI", "OMPI", "HYDRA", "PRTE", "OMPBIND")
"""How variables begin that an engine around this program has set, and that the launchers must not see."""

Make = Callable[[int], list[str]]
"""The command of a launcher for a number of copies."""


class Missing(Exception):  # noqa: N818 - it is no error of this program
    """A launcher is not here; the text tells why."""


class Setting(Record):
    """What launchers are made from; `floor` is the compiled posix_spawn.c, if there is a compiler."""

    env: Mapping[str, str]
    floor: str | None
    torchrun: str | None


def found(*names: str) -> str:
    """Return the path of the first program that is there; raises Missing."""
    path = next((path for path in map(shutil.which, names) if path), None)
    if path is None:
        raise Missing(f"no {names[0]} on the PATH")
    return path


def make_environment(folder: Path, foreign: tuple[str, ...] = FOREIGN) -> dict[str, str]:
    """Return this environment without what begins so, with temporary files and claims in a folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "SLURM_CONF" or not name.startswith(foreign)
    }
    return {**kept, "TMPDIR": str(folder), "OMPBIND_RUNTIME_DIR": str(folder)}


def compile_floor(folder: Path) -> str | None:
    """Compile posix_spawn.c into a folder and return its path; None without a compiler."""
    return compile_beside("posix_spawn.c", folder, "-O2")


def compile_beside(name: str, folder: Path, *options: str) -> str | None:
    """Compile a file of this folder into another and return the program; None without a compiler."""
    compiler = next((path for path in map(shutil.which, ("cc", "gcc", "clang")) if path), None)
    if compiler is None:
        return None
    source = Path(__file__).with_name(name)
    program = str(folder / source.stem)
    subprocess.run([compiler, *options, "-Wall", "-o", program, str(source)], check=True)
    return program


def make_floor(setting: Setting) -> Make:
    """Return the command of the compiled loop."""
    if setting.floor is None:
        raise Missing("there is no C compiler (cc, gcc, clang); peak memory is not measured either")
    program = setting.floor
    return lambda ranks: [program, str(ranks), COPIED]


def make_loop(wrapper: str, word: Callable[[int], str]) -> Make:
    """Return a bash loop over commands behind a wrapper; `word` turns a CPU into its argument."""
    words = " ".join(word(cpu) for cpu in sorted(os.sched_getaffinity(0)))
    each = f"{wrapper} ${{w[i % ${{#w[@]}}]}} {COPIED}"
    code = f"w=({words}); for ((i = 0; i < $0; i++)); do {each} & done; wait"
    bash = found("bash")
    return lambda ranks: [bash, "-c", code, str(ranks)]


def as_hwloc_set(cpu: int) -> str:
    """Return the set of one CPU as hwloc writes it: 32 bits in each part."""
    return ",".join([f"0x{1 << cpu % 32:08x}", *["0x00000000"] * (cpu // 32)])


def make_openmpi(_: Setting) -> Make:
    """Return Open MPI's command; raises Missing where mpirun is another's."""
    start = find_openmpi()
    bound = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "core:overload-allowed"]
    return lambda ranks: [*start, *bound, "-n", str(ranks), COPIED]


def find_openmpi() -> list[str]:
    """Return how Open MPI's commands begin; raises Missing where mpirun is another's."""
    mpirun = found("mpirun.openmpi", "mpirun")
    told = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    if "Open MPI" not in told and "OpenRTE" not in told:
        raise Missing(f"{mpirun} is not Open MPI's")
    return [mpirun, *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


def slurm_answers(env: Mapping[str, str]) -> bool:
    """Tell whether a controller of Slurm answers."""
    sinfo = shutil.which("sinfo")
    return sinfo is not None and not subprocess.run([sinfo], env=env, capture_output=True).returncode


def make_srun(setting: Setting) -> Make:
    """Return Slurm's command, if a controller answers."""
    srun = found("srun")
    if not slurm_answers(setting.env):
        raise Missing("no Slurm answers; starting one takes root, munged, slurmctld and slurmd")
    return lambda ranks: [srun, "-O", "--cpu-bind=cores", "-n", str(ranks), COPIED]


def make_torchrun(setting: Setting) -> Make:
    """Return torchrun's command."""
    path = find_torchrun(setting.torchrun or str(Path(sys.executable).with_name("torchrun")))
    return lambda ranks: [path, "--standalone", "--no-python", f"--nproc-per-node={ranks}", COPIED]


def find_torchrun(path: str) -> str:
    """Return the path if torchrun is there; raises Missing."""
    if not os.access(path, os.X_OK):
        raise Missing("no torchrun in this environment; --torchrun PATH names one")
    return path


def make_hydra(_: Setting) -> Make:
    """Return MPICH's command."""
    hydra = found("mpiexec.hydra")
    return lambda ranks: [hydra, "-bind-to", "core", "-n", str(ranks), COPIED]


def make_ompbind(_: Setting) -> Make:
    """Return the command of the ompbind beside this Python."""
    program = str(Path(sys.executable).with_name("ompbind"))
    return lambda ranks: [program, "run", "-q", "--share", "-n", str(ranks), "--", COPIED]


MAKERS: Mapping[str, Callable[[Setting], Make]] = {
    "floor": make_floor,
    "taskset": lambda _: make_loop(f"{found('taskset')} -c", str),
    "numactl": lambda _: make_loop(found("numactl"), lambda cpu: f"--physcpubind={cpu}"),
    "hwloc": lambda _: make_loop(found("hwloc-bind"), as_hwloc_set),
    "hydra": make_hydra,
    "openmpi": make_openmpi,
    "srun": make_srun,
    "torchrun": make_torchrun,
    "ompbind": make_ompbind,
}


def make_launchers(names: tuple[str, ...], setting: Setting) -> dict[str, Make]:
    """Return the launchers that are here; tell of those that are not."""
    launchers = {}
    for name in names:
        try:
            launchers[name] = MAKERS[name](setting)
        except Missing as why:
            print(f"{name}: left out, {why}")
    return launchers
