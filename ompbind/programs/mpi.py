"""Programs of MPI, and the words that start their ranks unbound, as one job: `ompbind exec` binds them."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from ompbind.programs.find_command import find_file

_LAUNCHERS = {
    **dict.fromkeys(("libmpi.so.40", "mpi4py"), "mpirun"),  # Open MPI, any MPI
    **dict.fromkeys(("libmpi.so.12", "libmpich.so.12"), "mpiexec.hydra"),  # MPICH and Intel MPI, Debian's
}
_IMPORT = r"(?m)^(?:.*;)?[ \t]*(?:import|from)[ \t]+mpi4py\b"


def find_job(files: Iterable[str], argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that start a job of the MPI among the files of a command, and the command; or ()."""
    name = next(filter(None, (_LAUNCHERS.get(os.path.basename(file)) for file in files)), "")
    if name and env.get("SLURM_JOB_ID") and not find_file(name, env):
        name = "srun"  # works only with the PMI of the MPI: its own launcher is the first choice
    return (unbind(name, env), shorten(argv)) if name else ()


def shorten(command: Sequence[str]) -> str:
    """Return the three words of a command that messages show."""
    return shlex.join(command[:3]) + " ..." * (len(command) > 3)


def unbind(line: str, env: Mapping[str, str]) -> str:
    """Return the command line of a launcher with the option by which it binds no rank."""
    name, _, rest = line.partition(" ")
    option = "--bind-to none" if re.match("mpi|orte|p.*run", name) else "--cpu-bind=none" * (name == "srun")
    directory = os.path.dirname(os.path.realpath(find_file(name, env) or "/"))
    if option and os.path.isfile(os.path.join(directory, "impi_info")):
        option = "-genv I_MPI_PIN 0"  # Intel MPI binds ranks unless this variable is 0
    return " ".join(f"{name} {option} {re.sub('--?(?:bind-to|cpu-bind)[ =][^ ]+', '', rest)}".split())


def find_imports(words: Sequence[str]) -> list[str]:
    """Return mpi4py if the script among the arguments of a Python imports it."""
    script = next((word for word in words if word[:1] != "-" and os.path.isfile(word)), "")
    if not os.access(script, os.R_OK):
        return []
    with open(script, encoding="utf-8", errors="replace") as file:
        return ["mpi4py"] * bool(re.search(_IMPORT, file.read(1 << 16)))
