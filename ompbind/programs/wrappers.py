"""Programs that execute the command in their arguments, and what they change of what ompbind sets for a rank.

A *wrapper* executes the command itself (`taskset -c 0 app`). A launcher starts processes of its own
(`mpirun -n 2 app`). Both are recognized by their names, as Pythons and shells are. The options before the
command decide what a wrapper changes. To add a wrapper: a name in WRAPPERS; if it changes the binding or
variables, also rows in _OPTIONS and _READERS. To add a program that binds itself: a row in SELF_BINDING; one
that another process starts, as `docker run` does, or without the variables: a row in ELSEWHERE.
"""

import getopt
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import dropwhile
from typing import TypeAlias

from ompbind.cpuset import CpuSet, parse_set
from ompbind.openmp.binding import OR_HOLD
from ompbind.programs.find_command import find_file
from ompbind.programs.mpi import shorten, unbind
from ompbind.record import Record
from ompbind.text import whole_number

PYTHON_MANAGERS = (
    "uv", "uvx", "pixi", "poetry", "pdm", "hatch", "pipenv", "pipx", "conda", "mamba", "micromamba",
)  # fmt: skip
"""Package managers that start a Python of an environment: `uv run train.py`."""

SHELLS = (
    "sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "make", "xargs", "parallel", "ompbind", "docker",
    "podman", *PYTHON_MANAGERS,
)  # fmt: skip
"""Programs that start others, which no file names: shells, package managers."""

WRAPPERS = (
    "env", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "timeout", "chrt", "taskset", "numactl",
    "perf", "strace", "ltrace", "catchsegv", "gdb", "valgrind", "sudo", "exec", "prlimit", "setpriv", "flock",
    "tini", "dumb-init", "unshare", "hwloc-bind",
)  # fmt: skip
"""Programs that execute the command in their arguments."""

PROCESS_LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("mpirun", "mpiexec", "srun", "prun", "prterun", "orterun", "jsrun", "aprun"), ()),
    "flux": ("run", "submit"),
}
"""Commands that start the processes of a job and may bind them, with their subcommands; () without any."""

_TORCHRUN_MODULES = (["torch.distributed.run"], ["torch.distributed.launch"])
"""The modules with the command line of torchrun: `python -m torch.distributed.run`."""


class WorkerProgram(Record):
    """A program that starts worker processes of its own, which share the CPUs of one rank.

    `options` and the `variable` set the number of workers, which is `default` without them, and `bare` if an
    option has no value: "" for a single process, else a word for a number that the program chooses. If there
    are `subcommands`, only these start workers. `runs_jobs`: the workers are commands with one thread each.
    """

    options: tuple[str, ...]
    variable: str = ""
    default: str = ""
    bare: str = ""
    subcommands: tuple[str, ...] = ()
    runs_jobs: bool = False


_CELERY_THREADS = ("solo", "threads", "gevent", "eventlet")
"""Values of --pool with which the workers of celery are threads."""

_PER_CPU, _JOBS = "one per CPU", ("-j", "--jobs")
_BUILDS = ("build", "test", "nextest", "bench", "check", "clippy", "coverage", "doc", "run")
_BUILDER = WorkerProgram(
    options=(*_JOBS, "--test-threads"), default=_PER_CPU, subcommands=_BUILDS, runs_jobs=True
)

WORKER_PROGRAMS: Mapping[str, WorkerProgram] = {
    "gunicorn": WorkerProgram(options=("-w", "--workers"), variable="WEB_CONCURRENCY"),
    "uvicorn": WorkerProgram(options=("--workers",), variable="WEB_CONCURRENCY"),
    "fastapi": WorkerProgram(options=("--workers",), variable="WEB_CONCURRENCY", subcommands=("run",)),
    "hypercorn": WorkerProgram(options=("-w", "--workers")),
    "granian": WorkerProgram(options=("--workers",), variable="GRANIAN_WORKERS"),
    "uwsgi": WorkerProgram(options=("-p", "--processes", "--workers")),
    "celery": WorkerProgram(
        options=("-c", "--concurrency", "--autoscale"), default=_PER_CPU, subcommands=("worker",)
    ),
    "dramatiq": WorkerProgram(options=("-p", "--processes"), default=_PER_CPU),
    **dict.fromkeys(("pytest", "py.test"), WorkerProgram(options=("-n", "--numprocesses"))),
    "julia": WorkerProgram(options=("-p", "--procs")),
    "ctest": WorkerProgram(options=("-j", "--parallel"), variable="CTEST_PARALLEL_LEVEL", bare=_PER_CPU),
    "tox": WorkerProgram(options=("-p", "--parallel"), bare=_PER_CPU),
    "meson": WorkerProgram(options=("-j", "--num-processes"), default=_PER_CPU, subcommands=("test",)),
    **dict.fromkeys(
        ("make", "scons", "parallel", "prove", "waf"), WorkerProgram(options=_JOBS, runs_jobs=True)
    ),
    "cmake": WorkerProgram(
        options=("-j", "--parallel"),
        variable="CMAKE_BUILD_PARALLEL_LEVEL",
        subcommands=("--build",),
        runs_jobs=True,
    ),
    "ninja": WorkerProgram(options=("-j",), default=_PER_CPU, runs_jobs=True),
    "xargs": WorkerProgram(options=("-P", "--max-procs"), runs_jobs=True),
    "cargo": _BUILDER.replace(variable="CARGO_BUILD_JOBS"),
    "bazel": _BUILDER,
    "snakemake": WorkerProgram(options=("-c", "--cores", *_JOBS), runs_jobs=True),
    "nextflow": WorkerProgram(options=(), default=_PER_CPU, subcommands=("run",), runs_jobs=True),
}
"""The programs by their names, which are also the names of their modules: `python -m gunicorn`.

Programs that start several processes only by their code, such as a script with joblib, have no row.
"""


def _find_value(options: Sequence[str], words: Sequence[str], bare: str = "") -> str:
    """Return the last value of options: `-w 4`, `-w4`, `--workers=4`; "" without any, `bare` if bare."""
    value = ""
    for position, word in enumerate(words):
        for option in options:
            is_short = len(option) == 2
            if word == option:
                value = next((each for each in words[position + 1 : position + 2] if each[:1] != "-"), bare)
            elif word.startswith(option if is_short else f"{option}="):
                value = word[len(option) + (not is_short) :]
    return value


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


# Most MPI launchers, Slurm and Flux bind each process by rules of their own. torchrun and, by default, MPICH
# bind none: all their processes share the CPUs of the rank that the launcher is. In both cases ompbind should
# be started by the launcher, once for each process.

_WORKERS = ("--nproc-per-node", "--nproc_per_node", "--num_processes", "--num-processes")
_MODULE = ("-m", "--module")
_NO_PYTHON = ("--no-python", "--no_python")
_FLAGS = ("--standalone", "--run-path", "--run_path", *_MODULE, *_NO_PYTHON)
"""Options of torchrun without a value; all other options have one."""


class Launch(Record):
    """The processes that a command line starts; `text` is the launcher with its options.

    `instead` is the command line in which `ompbind exec` binds each process, "" if none works. `workers` is
    their number, or a word such as "gpu", if the launcher does not bind them. `jobs`: they are commands with
    one thread each.
    """

    text: str
    instead: str = ""
    workers: str = ""
    jobs: bool = False


def read_launch(path: str, words: Sequence[str], env: Mapping[str, str]) -> Launch | None:
    """Return which processes a program starts, given its arguments; None if it is no launcher.

    None too if it starts `ompbind`, and if it starts a single process, which has the CPUs of its rank.
    """
    if any(os.path.basename(word) == "ompbind" for word in words):
        return None
    name = os.path.basename(path)
    is_module = name.startswith("python") and words[:1] == ["-m"] and words[1:2] in _TORCHRUN_MODULES
    if name == "torchrun" or is_module:
        start = 2 if is_module else 0
        return _read_torchrun([name, *words[:start]], words[start:])
    if name == "accelerate":
        return _read_accelerate(words, env)
    line = [name, *words]
    if name in PYTHON_MANAGERS and "run" in words:  # `uv run pytest`
        line = list(dropwhile(lambda word: word.startswith("-"), words[words.index("run") + 1 :]))
    if line and line[0].startswith("python"):  # `python -m gunicorn`
        line = line[2 if line[1:2] == ["-m"] else 1 :]
    program = os.path.basename(line[0]) if line else ""
    if program in WORKER_PROGRAMS:
        return _read_workers(program, line[1:], env)
    subcommands = PROCESS_LAUNCHERS.get(find_launcher_name(path))
    if subcommands is None or (subcommands and (not words or words[0] not in subcommands)):
        return None
    start = find_command_word(words, env, first=len(subcommands[:1]))
    own_words = [name, *words[:start]] if start < len(words) else [name, *words[: len(subcommands[:1])]]
    text = " ".join(own_words).removesuffix(" --")
    more = "" if words[start:] else " ..."
    return _make_launch(text, unbind(text, env) + more, words[start:] or ["CMD"])


def _read_workers(name: str, words: Sequence[str], env: Mapping[str, str]) -> Launch | None:
    program, end = WORKER_PROGRAMS[name], [*words, "--"].index("--")
    words, behind = words[:end], words[end:]  # `cargo test -- --test-threads 4`
    is_pool_of_threads = name == "celery" and _find_value(("-P", "--pool"), words) in _CELERY_THREADS
    subcommand = next((word for word in words if word in program.subcommands), "")
    if (program.subcommands and not subcommand) or is_pool_of_threads:
        return None
    tests = _find_value(("--test-threads",), behind)
    workers = tests or _find_value(program.options, words, program.bare)
    workers = (workers or env.get(program.variable, "") or program.default).partition(",")[0]  # MAX,MIN
    if program.runs_jobs and whole_number(workers) is None:
        workers = program.default
    if workers in ("", "0", "1"):
        return None
    text = f"{name} {subcommand}".rstrip() if program.runs_jobs else name
    instead = f"{text} {program.options[0]}{{threads}}" if program.runs_jobs and program.options else ""
    instead = f"{text} -- --test-threads={{threads}}" if tests else instead
    return Launch(text=text, instead=instead, workers=workers, jobs=program.runs_jobs)


def find_command_word(words: Sequence[str], env: Mapping[str, str], first: int = 0) -> int:
    """Return the position of the word that is a command, from `first` on; the number of words if none is.

    An option or a NAME=VALUE is no command, nor is a word that names no executable file.
    """
    for position, word in enumerate(words[first:], first):
        if word[:1] != "-" and "=" not in word and find_file(word, env):
            return position
    return len(words)


def _read_torchrun(own_words: Sequence[str], words: Sequence[str]) -> Launch | None:
    start = 0
    while start < len(words) and words[start].startswith("-"):
        start += 1 if "=" in words[start] or words[start] in _FLAGS else 2
    return _launch_pythons(own_words, words[:start], words[start:], "--no-python") if words[start:] else None


def _read_accelerate(words: Sequence[str], env: Mapping[str, str]) -> Launch | None:
    """Return which processes `accelerate launch` of Hugging Face starts, of the first word with ".py"."""
    is_single = "--cpu" in words and not any(word.startswith("--mpirun_hostfile") for word in words)
    if words[:1] != ["launch"] or is_single:
        return None
    scripts = (place for place, word in enumerate(words) if word.endswith(".py"))
    is_program = bool(set(_NO_PYTHON) & set(words))
    start = find_command_word(words, env, first=1) if is_program else next(scripts, len(words))
    return _launch_pythons(["accelerate", "launch"], words[1:start], words[start:], "--no_python")


def _launch_pythons(
    own_words: Sequence[str], options: Sequence[str], program: Sequence[str], no_python: str
) -> Launch | None:
    """Return the processes of a launcher that runs `program` with Python, unless an option says otherwise."""
    workers = _find_value(_WORKERS, options)
    if workers in ("", "1"):
        return None
    if program and not set(_NO_PYTHON) & set(options):
        program = ["python", *(["-m"] if set(_MODULE) & set(options) else []), *program]
    kept = [word for word in options if word not in (*_MODULE, *_NO_PYTHON)]
    text, launcher = " ".join([*own_words, *options]), " ".join([*own_words, no_python, *kept])
    return _make_launch(text, launcher, program or ["CMD"]).replace(workers=workers)


def _make_launch(text: str, launcher: str, command: Sequence[str]) -> Launch:
    return Launch(text=text, instead=f"{launcher} ompbind exec -- {shorten(command)}")


class Wrapper(Record):
    """A program of a command line that changes what ompbind sets for a rank; `text` has its options too.

    `rebinds`: it sets the affinity mask, to `cpus`, to the CPUs of the NUMA `nodes` (OS numbers), or to CPUs
    that its options do not show (both None); `remedy` is what works instead, "" for --mask. `launch`: it is a
    launcher that starts these processes. `lost` is what of the rank does not reach the program, by ELSEWHERE.
    It removes the `removed` variables, or all if it `clears`, and sets the `assigned` ones.
    """

    text: str
    remedy: str = ""
    rebinds: bool = False
    cpus: CpuSet | None = None
    nodes: CpuSet | None = None
    sets_memory: bool = False
    launch: Launch | None = None
    lost: str = ""
    clears: bool = False
    removed: tuple[str, ...] = ()
    assigned: tuple[tuple[str, str], ...] = ()

    @property
    def changes(self) -> bool:
        """Whether it changes anything that ompbind sets."""
        return self.replace(text="", cpus=None, nodes=None) != NO_WRAPPER

    def make_env(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment of the command, from the environment of the wrapper."""
        kept = {} if self.clears else {name: env[name] for name in env if name not in self.removed}
        return {**kept, **dict(self.assigned)}


NO_WRAPPER = Wrapper(text="")

HPX = "libhpx"
_HPX_MANUAL = (
    "https://hpx-docs.stellar-group.org/latest/html/manual/launching_and_configuring_hpx_applications.html"
)

SELF_BINDING: tuple[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...], str, str], ...] = (
    ("GROMACS", ("gmx", "gmx_mpi", "gmx_d", "gmx_mpi_d", "mdrun"), (" -pin on",), (),
     f"omit -pin: by default mdrun keeps the CPUs of its rank{OR_HOLD}",
     "https://manual.gromacs.org/current/user-guide/mdrun-performance.html"),
    ("redis", ("redis-server", "valkey-server"), ("_cpulist", "-cpulist"), (),
     f"remove it: the threads then stay on the CPUs of the rank{OR_HOLD}",
     "https://github.com/redis/redis/blob/7.0/redis.conf"),
    ("Charm++", (), (" +setcpuaffinity", " +pemap", " +commap", " +excludecore"), (),
     f"omit it: processes and threads then stay on the CPUs of the rank{OR_HOLD}",
     "https://charm.readthedocs.io/en/latest/charm++/manual.html"),
    ("HPX", (), (" --hpx:", f" {HPX}"), (" --hpx:use-process-mask", " --hpx:bind=none"),
     f"add --hpx:use-process-mask{OR_HOLD}", _HPX_MANUAL),
    ("PyTorch", (), (" torch.backends.xeon.run_cpu",), (), "use 'ompbind run -n N -- python SCRIPT' instead",
     "https://github.com/pytorch/pytorch/blob/main/torch/backends/xeon/run_cpu.py"),
)  # fmt: skip
"""Programs that bind their threads to CPUs which they choose, also outside of the affinity mask.

Each row has the program, names of its files (() for any), words of its command or configuration by which it
binds, words by which it does not, what works instead, and the source.
"""

_CONFIGURATION_END = 1 << 18  # characters of a configuration file that are read at most


def find_self_binding(argv: Sequence[str]) -> Iterator[Wrapper]:
    """Yield what a command does if its program binds its own threads, by SELF_BINDING."""
    names = {os.path.basename(word) for word in argv}
    for program, files, binds, spares, remedy, _ in SELF_BINDING:
        if files and names.isdisjoint(files):
            continue
        text = " ".join(["", *argv])
        for path in (word for word in argv if files and word.endswith(".conf") and os.path.isfile(word)):
            with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read(_CONFIGURATION_END).splitlines()
                text += " ".join(["", *(line.strip() for line in lines if not line.strip().startswith("#"))])
        found = next(filter(text.__contains__, binds), None)
        if found and not any(word in text for word in spares):
            shown = next((word for word in text.split() if found.strip() in word), found.strip())
            yield Wrapper(text=f"{program} ({shown})", rebinds=True, remedy=remedy)


LOST_ALL = "hands the program to another process: the CPUs and variables of the rank do not reach it"
LOST_CPUS = LOST_ALL.replace(" and variables", "")
LOST_VARIABLES = "removes variables that ompbind sets, also OMP_NUM_THREADS, OMP_PLACES and RANK"
LOST_RUN = "exits while the program runs in the background, so 'ompbind run' stops the program"

_USER = "use 'sudo --preserve-env', or start ompbind there: '{0} ompbind run -- CMD'"
_SERVICES = "give the services what 'ompbind plan --format compose' prints"
_SESSION = "start ompbind there: \"{0} 'ompbind run -- CMD'\""
_BEFORE = r"( -\S+( [^-\s]\S*)??)*?"
_BEHIND = r"( (-[diPqt]+|--(detach|init|interactive|privileged|rm|tty)|-\S+=\S*)(?=\s|$)| -\S+( [^-\s]\S*)?)*"

ELSEWHERE: tuple[tuple[tuple[str, ...], str, str, str, str], ...] = (
    (("docker", "podman", "nerdctl"), rf"(( container)? exec| compose{_BEFORE} (exec|run))", LOST_ALL, "",
     "start ompbind there: '{0} ... ompbind exec -- CMD'"),
    (("docker", "podman", "nerdctl"), "( container)? (run|create)", LOST_ALL, "--cpuset-cpus",
     "use the options that 'ompbind plan --format docker' prints"),
    (("docker", "podman", "nerdctl"), f" compose{_BEFORE} (up|start)", LOST_ALL, "", _SERVICES),
    (("docker-compose", "podman-compose"), " (up|start|run|exec)", LOST_ALL, "", _SERVICES),
    (("lxc", "incus"), " exec", LOST_ALL, "", "start ompbind there: '{0} NAME -- ompbind run -- CMD'"),
    (("lxc-attach",), "", LOST_ALL, "", "start ompbind there: '{0} -n NAME -- ompbind run -- CMD'"),
    (("kubectl", "oc"), " (exec|run)", LOST_ALL, "", "start ompbind there: '{0} POD -- ompbind exec -- CMD'"),
    (("ramalama",), " (run|serve|bench)", LOST_ALL, " --nocontainer", "use 'ramalama --nocontainer' instead"),
    (("ollama",), " run", LOST_ALL, "", "use 'ompbind run -- ollama serve': it runs the models"),
    (("ssh", "mosh"), "", LOST_ALL, "", "start ompbind there: '{0} HOST ompbind run -- CMD'"),
    (("systemd-run",), "", LOST_ALL, " --scope|AllowedCPUs=|CPUAffinity=", "use 'systemd-run --scope'"),
    (("tmux",), r"(.* ;)? (new|neww|splitw|(new|split|respawn)-\w+|run-shell)", LOST_ALL, "", _SESSION),
    (("screen",), ".*? -X", LOST_ALL, "", _SESSION),
    (("screen",), r".*? (-dm\S*|-d -m)", LOST_RUN, "", "use 'screen -D -m', or '{0} ompbind run -- CMD'"),
    (("at", "batch", "sbatch", "bsub", "qsub"), "", LOST_CPUS, "", "write 'ompbind run -- CMD' in the job"),
    (("doas", "pkexec"), "", LOST_VARIABLES, "", "start ompbind there: '{0} ompbind run -- CMD'"),
    (("sudo",), ".*", LOST_VARIABLES, r" (-[AbHknPS]*E|--preserve-env(=\S*OMP_\S*)?)(?=\s|$)", _USER),
    (("su", "runuser"), r".*? (-|-l\w*|--login)", LOST_VARIABLES, "",
     "omit it, or start ompbind there: \"{0} USER -c 'ompbind run -- CMD'\""),
)  # fmt: skip
"""Programs that another process starts, or that do not get the variables of the rank.

Each row has names of commands, their words as a regular expression, what does not reach the program, words by
which the user gives it, and what works instead; {0} are the name and the words.
"""


def find_elsewhere(name: str, own_words: Sequence[str], words: Sequence[str]) -> Wrapper:
    """Return what of a rank does not reach the command behind `own_words` of a program, by ELSEWHERE."""
    own_text = " ".join(["", *(word.replace(" ", "_") for word in own_words)]).partition(" -- ")[0]
    for names, pattern, lost, spares, remedy in ELSEWHERE:
        if name not in names:
            continue
        found = re.match(rf"({_BEFORE}{pattern})(?=\s|$){_BEHIND}", own_text)
        binders = "ompbind" if lost == LOST_VARIABLES else "ompbind|taskset|numactl|hwloc-bind"
        is_given = re.search(rf"(?<![\w.-])({binders})(?=[\s'\";]|$)", " ".join(words))
        if found and not is_given and not (spares and re.search(spares, found[0])):
            shown = name + found[1]
            return Wrapper(text=shown, lost=lost, remedy=remedy.format(shown))
    return NO_WRAPPER


Options: TypeAlias = Sequence[tuple[str, str]]
"""The options of a wrapper, each with its long name and its value; "" without a value."""


def read_wrapper(path: str, words: Sequence[str], env: Mapping[str, str]) -> tuple[Wrapper, list[str]]:
    """Return what a program changes, and the command that it executes; [] if it executes none.

    `words` are its arguments. The command begins at the first word behind the options that is an executable
    file, not an option or a NAME=VALUE.
    """
    name = os.path.basename(path)
    if launch := read_launch(path, words, env):
        return Wrapper(text=launch.text, launch=launch), []
    if name not in WRAPPERS:
        return find_elsewhere(name, words, words), []
    if name == "env" and words[:1] in (["-S"], ["--split-string"]):  # one argument is split into several
        words = " ".join(words[1:]).split()
    options, rest = _parse_options(words, _OPTIONS.get(name, {}))
    # the first argument of perf may be named as a command
    start = find_command_word(rest, env, first=int(name == "perf"))
    own_words = words[: len(words) - len(rest) + start]
    reader = _READERS.get(name)
    wrapper = reader(options, rest[:start]) if reader else find_elsewhere(name, own_words, words)
    text = " ".join([name, *own_words]).removesuffix(" --")
    return wrapper.replace(text=text), list(rest[start:])


def _parse_options(words: Sequence[str], spellings: Mapping[str, str]) -> tuple[Options, Sequence[str]]:
    """Return the options before the first other word, and the rest; all words if an option is unknown."""
    if not (spellings and words and words[0].startswith("-")):
        return (), words
    long = [name + "=" * letter.endswith(":") for letter, name in spellings.items()]
    try:
        found, rest = getopt.getopt(list(words), "".join(spellings), long)
    except getopt.GetoptError:
        return (), words
    names = {f"-{letter[0]}": name for letter, name in spellings.items()}
    return [(names.get(option, option[2:]), value) for option, value in found], rest


_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "env": {
        "i": "ignore-environment", "u:": "unset", "C:": "chdir", "a:": "argv0", "v": "debug", "0": "null",
    },
    "taskset": {"a": "all-tasks", "p": "pid", "c": "cpu-list"},
    "numactl": {
        "a": "all", "b": "balancing", "C:": "physcpubind", "N:": "cpunodebind", "c:": "cpubind",
        "m:": "membind", "i:": "interleave", "p:": "preferred", "P:": "preferred-many",
        "w:": "weighted-interleave", "l": "localalloc",
    },
}  # fmt: skip
"""The options of wrappers: letter and long name, with ":" if a value follows."""


def _read_env(options: Options, words: Sequence[str]) -> Wrapper:
    clears = "ignore-environment" in dict(options) or words[:1] == ["-"]
    removed = tuple(value for name, value in options if name == "unset")
    pairs = (word.partition("=") for word in words if not word.startswith("-"))
    assigned = tuple((name, value) for name, equals, value in pairs if equals)
    return Wrapper(text="", clears=clears, removed=removed, assigned=assigned)


def _read_taskset(options: Options, words: Sequence[str]) -> Wrapper:
    if "pid" in dict(options) or not words:  # changes another process
        return NO_WRAPPER
    if "cpu-list" in dict(options):  # no known CPUs for forms that only the wrapper understands
        return Wrapper(text="", rebinds=True, cpus=parse_set(words[0], CpuSet.from_list))
    return Wrapper(text="", rebinds=True, cpus=parse_set(words[0].removeprefix("0x"), CpuSet.from_mask))


def _read_numactl(options: Options, words: Sequence[str]) -> Wrapper:
    values = dict(options)
    cpus = {"physcpubind", "cpunodebind", "cpubind"} & values.keys()
    memory = values.keys() - {*cpus, "all", "balancing"}
    numbers = parse_set(values[min(cpus)], CpuSet.from_list) if len(cpus) == 1 else None
    field = "cpus" if cpus == {"physcpubind"} else "nodes"
    return Wrapper(text="", rebinds=bool(cpus), sets_memory=bool(memory)).replace(**{field: numbers})


def _read_hwloc_bind(options: Options, words: Sequence[str]) -> Wrapper:
    if {"--get", "--get-last-cpu-location", "--pid", "--tid"} & set(words):
        return NO_WRAPPER
    memory = "--membind" in words
    return Wrapper(text="", rebinds=not memory or "--cpubind" in words, sets_memory=memory)


_READERS: Mapping[str, Callable[[Options, Sequence[str]], Wrapper]] = {
    "env": _read_env,
    "taskset": _read_taskset,
    "numactl": _read_numactl,
    "hwloc-bind": _read_hwloc_bind,
}
"""What wrappers change: from their options and the words between these and the command."""
