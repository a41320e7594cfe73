"""Programs that are recognized by their names: Pythons, shells, wrappers, launchers of processes.

`wrappers` and `process_launchers` read what a wrapper or a launcher in a command line does.
"""

import os
from collections.abc import Mapping, Sequence

SHELLS = (
    "sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "make", "xargs", "parallel", "ompbind", "docker",
    "podman", "uv", "uvx", "pixi", "poetry", "pdm", "hatch", "pipenv", "pipx", "conda", "mamba", "micromamba",
)  # fmt: skip
"""Programs that start others, which no file names: shells, package managers."""

WRAPPERS = (
    "env", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "timeout", "chrt", "taskset", "numactl",
    "perf", "strace", "ltrace", "catchsegv", "gdb", "valgrind", "sudo", "exec", "prlimit", "setpriv", "flock",
    "tini", "dumb-init", "unshare", "hwloc-bind",
)  # fmt: skip
"""Programs that execute the command in their arguments."""

PROCESS_LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "mpirun": (),
    "mpiexec": (),
    "srun": (),
    "prun": (),
    "prterun": (),
    "orterun": (),
    "jsrun": (),
    "aprun": (),
    "flux": ("run", "submit"),
}
"""Commands that start and bind the processes of a job, with the subcommands that do; () without any."""

TORCHRUN, _TORCHRUN_MODULES = "torchrun", ("torch.distributed.run", "torch.distributed.launch")
"""torchrun, and the modules with the same command line: `python -m torch.distributed.run`."""


def is_python(path: str) -> bool:
    """Return whether a file is a Python interpreter, by its name or the name of its link's target."""
    return python_version(path) is not None or python_version(os.path.realpath(path)) is not None


def python_version(path: str) -> str | None:
    """Return the version in the name of a Python: "3.11", "3.13t" or ""; None for other names."""
    name = os.path.basename(path)
    stem = next((stem for stem in ("python", "pypy") if name.startswith(stem)), "")
    version = name.removeprefix(stem)
    return version if stem and not version.removesuffix("t").strip("0123456789.") else None


def starts_others(path: str) -> bool:
    """Return whether a program starts others, which no file names: a shell or a launcher."""
    return os.path.basename(path) in SHELLS or find_launcher_name(path) in PROCESS_LAUNCHERS


def find_launcher_name(path: str) -> str:
    """Return the name that a launcher has in PROCESS_LAUNCHERS: "mpiexec" for mpiexec.hydra."""
    return os.path.basename(path).partition(".")[0]


def is_torchrun(path: str, words: Sequence[str]) -> bool:
    """Return whether a program with some arguments is torchrun, or a Python that runs it as a module."""
    name = os.path.basename(path)
    if name.startswith("python") and words[:1] == ["-m"]:
        return any(word in _TORCHRUN_MODULES for word in words[1:2])
    return name == TORCHRUN


def executes_arguments(path: str, words: Sequence[str]) -> bool:
    """Return whether a program may execute a command in its arguments: a wrapper or a launcher."""
    is_launcher = find_launcher_name(path) in PROCESS_LAUNCHERS or is_torchrun(path, words)
    return is_launcher or os.path.basename(path) in WRAPPERS
