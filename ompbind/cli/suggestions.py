"""What a user probably means: the most similar name, or what a name of another tool is called here.

Pure. The tables list names of other tools: numactl, taskset, Slurm,
Open MPI, MPICH, torchrun, docker, vLLM. What a suggestion names must exist: `known` are the names that do.
"""

import shlex
from collections.abc import Callable, Collection, Mapping

from ompbind.masks.parse import name_level
from ompbind.record import Record
from ompbind.text import suggest_name

_VERBS = {
    "run": ("start", "launch", "spawn", "mpirun", "mpiexec", "torchrun"),
    "exec": ("become", "srun", "bind"),
    "plan": ("show", "explain", "preview", "dry-run"),
    "bench": ("benchmark", "compare", "tune", "measure", "time", "hyperfine"),
    "topo": ("topology", "lstopo", "lscpu", "machine", "hardware"),
    "ps": ("ls", "list", "runs", "status", "top"),
    "inspect": ("threads", "verify", "affinity", "attach"),
    "stop": ("kill", "terminate", "cancel", "abort"),
    "rebind": ("repair", "repin", "taskset", "move"),
    "doctor": ("check", "diagnose", "lint"),
    "config": ("options", "settings", "configuration"),
    "completion": ("complete", "completions"),
    "--version": ("version",),
}
"""The verbs, and what users may call them."""

NO_VERBS = ("rm", "wait")
"""Verbs of other tools that ompbind has nothing for, although commands or verbs have such names."""

_WORDS = {
    "balanced": ("distribute", "even", "slot", "node-balanced"),
    "compact": ("block", "pack", "packed", "fill"),
    "spread": ("scatter", "cyclic"),
    "close": ("compact", "master", "primary"),
    "thread": ("cpu", "pu", "hwthread", "threads"),
    "none": ("no", "off", "false"),
    "bind": ("membind", "strict"),
    "local": ("localalloc", "default"),
    "performance": ("big", "p-core", "pcore", "p"),
    "efficiency": ("little", "e-core", "ecore", "e"),
    "stop": ("abort", "kill", "exit", "fail"),
    "continue": ("ignore", "keep-going"),
    "restart": ("always", "retry"),
    "tag": ("label", "prefix"),
    "table": ("text", "plain", "human"),
    "gpu": ("cuda", "nvidia", "rocm", "amd", "xpu"),
    "nic": ("network", "infiniband", "ib", "rdma", "hca"),
    "gomp": ("gnu", "gcc", "libgomp"),
    "llvm": ("clang", "libomp", "omp"),
    "intel": ("iomp", "libiomp5", "icx"),
}
"""Words that options accept, and words of other tools for them; names of domains are in `masks`."""


class OtherOption(Record):
    """Options of other tools with one meaning.

    `write` is what to write for ompbind, with {value} for the value of the option; `example` stands for a
    missing value. Where that is not enough, `read` makes the text from the value; "" if it means nothing.
    The row is for verbs that have the option `needs`; by default the first word of the text.
    """

    names: tuple[str, ...]
    write: str = ""
    example: str = ""
    read: Callable[[str], str] | None = None
    needs: str = ""


def _write_port(value: str) -> str:
    """Return a variable with a port for each rank, from a port or a placeholder for one; "" for a word."""
    if value[:1].isalpha():
        return ""
    port = f"{{rank+{value if value.isdecimal() else 8000}}}"
    return f"--env PORT={port}, or with --fill the option of the server after --"


def _write_cpus(value: str) -> str:
    """Return the option for `--cpus`: docker has a number of CPUs there, other tools a list."""
    if value.replace(".", "", 1).isdecimal() and not value.isdecimal():
        value = ""  # docker also has parts of CPUs
    if value.isdecimal():
        return f"-c {value} for {value} cores per rank, or -m {value} for CPU {value}"
    return f"-m {shlex.quote(value)}" if value else "-c C for C cores per rank, or -m MASK"


def _write_nodes(value: str, level: str = "node") -> str:
    """Return the mask for a list of NUMA nodes or packages: "0,2-3" → node:0,node:2-3."""
    return f"-m {shlex.quote(','.join(f'{level}:{number}' for number in (value or '0').split(',')))}"


def _write_ranks_or_nodes(value: str) -> str:
    """Return the option for `-N`: numactl has a list of NUMA nodes there, other tools a number."""
    is_list = bool(value) and (value == "0" or not value.isdecimal())
    return _write_nodes(value) if is_list else f"-n {value or 'N'}"


def _write_placement(value: str) -> str:
    """Return the option for a value of --bind-to, --map-by or --cpu-bind, such as "ppr:1:socket"."""
    word = value.lower().removeprefix("verbose,").removeprefix("quiet,").removeprefix("v,")
    kind, _, rest = word.partition(":")
    if kind in ("map_cpu", "mask_cpu", "pe-list"):
        return f"-m {shlex.quote(rest.replace(',', '|'))}"
    if kind in ("none", "no", "off"):
        return "-m none"
    return _write_level(rest.rpartition(":")[2] if kind == "ppr" else kind) or "-s balanced"


def _write_binding(value: str) -> str:
    """Return the option for a value of --bind-to or --cpu-bind: only these also bind within a rank."""
    written = _write_placement(value)
    is_thread = value.lower().rpartition(",")[2] in _WORDS["thread"]
    return "--bind thread" if is_thread else "--bind core" if written == "-s cores" else written


def _write_time(value: str) -> str:
    """Return --timeout for a time of Slurm: MINUTES[:SECONDS], [DAYS-]HOURS:MINUTES:SECONDS; others stay."""
    if value.isdecimal():
        return f"--timeout {value}m for minutes, or --timeout {value} for seconds"
    days, dash, clock = value.rpartition("-")
    numbers = clock.split(":")
    if all(map(str.isdecimal, numbers)):
        pairs = zip([days, *numbers], "dhms" if dash or numbers[2:] else "dms", strict=False)
        value = "".join(f"{number.lstrip('0')}{unit}" for number, unit in pairs if number.strip("0"))
    return f"--timeout {shlex.quote(value) if value else 'TIME'}"


def _write_level(value: str) -> str:
    """Return the strategy that gives each rank a domain, for a name such as "socket"; "" if it is none."""
    level = name_level(value)
    return f"-s {level if level.startswith('l') else f'{level}s'}" if level else ""


def _write_variable(value: str) -> str:
    """Return --env for a variable; MPICH has its value in the next word."""
    return f"--env {shlex.quote(value)}" if "=" in value else f"--env {value or 'NAME'}=VALUE"


def _write_restarts(value: str) -> str:
    """Return --on-failure for a number of restarts, or for a policy of docker such as "on-failure:3"."""
    word, _, limit = value.partition(":")
    if value == "no":
        return "--on-failure stop"
    if word.isdecimal() or limit.isdecimal():
        return f"--on-failure restart:{limit or word}"
    return "--on-failure restart" if value else "--on-failure restart:N"


OTHER_OPTIONS = (
    # how many ranks
    OtherOption(names=("-np", "--np", "--n", "--num", "--count", "--ntasks", "--nprocs", "--nproc", "--procs",
                       "--proc", "--num-processes", "--num_processes", "--nproc-per-node",
                       "--nproc_per_node", "--ntasks-per-node", "--tasks-per-node", "-npernode", "--npernode",
                       "-ppn", "--ppn", "--replicas",
                       "--num-replicas", "--instances", "--copies", "--scale", "--jobs", "-j", "--num-ranks",
                       "--nranks"),
                write="-n {value}", example="N"),
    OtherOption(names=("--workers", "--num-workers", "--num_workers", "--processes", "--nworkers"),
                write="-n {value}, or --processes-per-rank {value} if the command starts them itself",
                example="N"),
    OtherOption(names=("-N",), read=_write_ranks_or_nodes),
    OtherOption(names=("--tp", "--tp-size", "--tensor-parallel-size", "--dp", "--dp-size", "--pp",
                       "--pp-size", "--data-parallel-size", "--pipeline-parallel-size"),
                write="-n {value}, or the option of the server after --", example="N"),
    # which CPUs
    OtherOption(names=("--cpus-per-task", "--cpus-per-proc", "--cpus-per-rank", "--cores-per-task",
                       "--cores-per-rank"),
                write="-c {value}", example="C"),
    OtherOption(names=("--num-threads", "--nthreads", "--omp-threads", "--omp-num-threads",
                       "--threads-per-rank", "--threads-per-task"),
                write="-t {value}", example="T"),
    OtherOption(names=("--cpus",), read=_write_cpus),
    OtherOption(names=("--cpu", "--cpu-list", "--core-list", "--cpu-set", "--cpuset", "--cpuset-cpus",
                       "--cpu-mask", "--cpumask", "--physcpubind", "-C", "--affinity", "--cpu-affinity"),
                write="-m {value}", example="MASK"),
    OtherOption(names=("--pin", "--pinning", "--taskset"),  # they may have no value, and the command follows
                read=lambda v: f"-m {shlex.quote(v)}" if v[:1].isdecimal() else "-m MASK"),
    OtherOption(names=("--cpunodebind", "--node", "--numa", "--numa-node", "--numa-nodes"),
                read=_write_nodes),
    OtherOption(names=("--socket", "--package"), read=lambda v: _write_nodes(v, "package")),
    OtherOption(names=("--cpu-bind", "--cpu_bind", "--bind-to", "-bind-to", "--binding", "-binding"),
                read=_write_binding),
    OtherOption(names=("--map-by", "-map-by", "--distribution"), read=_write_placement),
    OtherOption(names=("--hint",),
                read=lambda v: {"nomultithread": "--smt 1", "multithread": "--smt all"}.get(v, "")),
    OtherOption(names=("--threads-per-core",), write="--smt {value}", example="K"),
    OtherOption(names=("--nomultithread", "--no-hyperthreading", "--no-ht"), write="--smt 1"),
    OtherOption(names=("--use-hwthread-cpus", "--hyperthreading", "--ht"), write="--smt all"),
    OtherOption(names=("--oversubscribe", "--overcommit", "-O"), write="--share"),
    OtherOption(names=("--gpus-per-task", "--gpus-per-rank", "--gpus-per-proc"),
                write="--devices gpu --devices-per-rank {value}", example="K"),
    OtherOption(names=("--gpus", "--gpu", "-G", "--gpus-per-node", "--gpu-bind", "--gres"),
                write="--devices gpu"),
    # memory
    OtherOption(names=("--membind", "--mem-bind", "--mem_bind"),
                read=lambda v: "--memory local" if v in ("local", "none", "no") else "--memory bind"),
    OtherOption(names=("--cpuset-mems",),
                write="--memory bind, which limits memory to the NUMA nodes of the rank's CPUs"),
    OtherOption(names=("--interleave", "-i"), write="--memory interleave"),
    OtherOption(names=("--weighted-interleave",), write="--memory weighted"),
    OtherOption(names=("--preferred",), write="--memory preferred"),
    OtherOption(names=("--localalloc",), write="--memory local"),
    # the environment of ranks
    OtherOption(names=("-x", "--export", "-genv", "--genv", "-e", "--setenv"), read=_write_variable),
    OtherOption(names=("--port", "-p"), read=_write_port, needs="--fill"),
    OtherOption(names=("-wdir", "--wdir", "-wd", "--workdir", "--working-dir", "--working-directory", "--cwd",
                       "-D", "-w"),
                write="--chdir {value}", example="DIR"),
    OtherOption(names=("--standalone", "--master-addr", "--master_addr", "--master-port", "--master_port",
                       "--rdzv-endpoint", "--rdzv_endpoint", "--rdzv-backend", "--rdzv_backend"),
                write="--rendezvous"),
    OtherOption(names=("-J", "--job-name"), write="--run-id {value}", example="NAME"),
    OtherOption(names=("--config-file", "--config_file", "--conf"), write="--config {value}", example="FILE"),
    OtherOption(names=("--profile",), write="--preset {value}", example="NAME"),
    # output
    OtherOption(names=("--tag", "-l", "--label", "--tag-output", "-prepend-rank", "--prepend-rank"),
                write="--output tag"),
    OtherOption(names=("--output-filename", "--log_dir", "--log-file", "--logs", "--redirects", "--tee"),
                write="--log-dir DIR"),
    OtherOption(names=("--silent",), write="--quiet"),
    OtherOption(names=("--report-bindings", "--display-map", "-print-rank-map", "--debug"), write="-v"),
    OtherOption(names=("--test-only", "--simulate", "--do-not-launch"), write="--dry-run"),
    OtherOption(names=("--json",), write="--export json", needs="--export"),
    OtherOption(names=("--json",), write="--format json", needs="--format"),
    OtherOption(names=("--json",), write="'ompbind plan --format json'", needs="--dry-run"),
    OtherOption(names=("--joblog",), write="--report {value}", example="FILE"),
    OtherOption(names=("-V",), write="--version"),
    OtherOption(names=("-p", "--pid"), needs="--problems",
                read=lambda v: f"'ompbind inspect {v if v.isdecimal() else 'PID'}'"),
    # failures and time limits
    OtherOption(names=("--time", "--time-limit"), read=_write_time),
    OtherOption(names=("--no-kill", "--keep-going"), write="--on-failure continue"),
    OtherOption(names=("--kill-after", "--stop-timeout", "--stop-grace-period"),
                write="--grace {value}", example="TIME"),
    OtherOption(names=("--kill-on-bad-exit", "-K", "--halt"), write="--on-failure stop"),
    OtherOption(names=("--max-restarts", "--max_restarts", "--restart", "--restarts", "--retries"),
                read=_write_restarts),
    OtherOption(names=("--detach", "-d", "--background", "--daemon"), needs="--verify",  # of `run` alone
                write="'ompbind run ... &', which the shell runs in the background"),
    OtherOption(names=("--check",), write="--verify"),
    # measuring
    OtherOption(names=("--runs", "--warmup", "--export-json"), needs="--verify",
                write="'ompbind bench', which repeats and compares runs"),
    OtherOption(names=("--runs", "--max-runs", "--rounds"), write="--max-rounds {value}", example="N"),
    OtherOption(names=("--export-json",), write="--export json={value}", example="FILE"),
    OtherOption(names=("--export-csv",), write="--export csv={value}", example="FILE"),
    OtherOption(names=("--export-markdown",), write="--export markdown={value}", example="FILE"),
)  # fmt: skip
"""Options of other tools. A row counts only if the verb has the option that it needs."""

REMOVED_OPTIONS: dict[str, str] = {}
"""Options that ompbind had, and what to do instead: without a capital letter or a full stop."""

_NO_OPTIONS = ("--file", "--kill", "--end", "--slow", "--kind", "--plain")
"""Options of other tools that ompbind has nothing for, although one of its options has a similar name."""


def suggest_verb(word: str, known: Collection[str]) -> str:
    """Return the verb that a word probably means, "" if it is like none."""
    return "" if word in NO_VERBS else _find_name(word, known, _VERBS)


def suggest_word(word: str, known: Collection[str]) -> str:
    """Return the value of an option that a word probably means, "" if it is like none."""
    level = name_level(word)
    return next((name for name in (level, f"{level}s") if level and name in known), "") or _find_name(
        word, known, _WORDS
    )


def suggest_value(option: str, text: str, known: Collection[str]) -> str:
    """Return a hint for a wrong value of an option, or for the first wrong word of a list; "" if unknown.

    `option` is the name of the option: `--bind` has domains as values in other tools.
    """
    wrong = next((word for part in text.split(",") if (word := part.strip()) not in known), "")
    word = suggest_word(wrong, known)
    if word:
        return f"did you mean '{word}'?"
    meant = _write_level(wrong) if option == "--bind" else ""
    if option == "--smt" and wrong in ("0", *_WORDS["none"]):
        meant = "--smt 1"
    return f"did you mean {meant}?" if meant else ""


def suggest_option(name: str, value: str, known: Collection[str]) -> str:
    """Return what to write for an unknown option with a value, "" if nothing is similar."""
    if name in _NO_OPTIONS or not name.strip("-"):
        return ""
    long = [option.removeprefix("--") for option in known if option.startswith("--")]
    similar = suggest_name(name.lstrip("-").replace("_", "-"), long)
    return find_option(name, value, known) or (similar and f"--{similar}")


def make_hint(meant: str) -> str:
    """Return a hint with what to write: a question for one proposal, an instruction for several."""
    return f"write {meant}" if ", or " in meant else f"did you mean {meant}?"


def find_option(name: str, value: str, known: Collection[str]) -> str:
    """Return what to write for an option of another tool, "" if it is none.

    Many tools accept long options with a single dash too.
    """
    names = {name, f"-{name}"} if len(name) > len("-x") else {name}
    written = ((row, _write(row, value)) for row in OTHER_OPTIONS if names.intersection(row.names))
    return next((text for row, text in written if (row.needs or text.split(" ")[0]) in known), "")


def _write(row: OtherOption, value: str) -> str:
    """Return what to write for an option of another tool."""
    return (
        row.read(value) if row.read else row.write.format(value=shlex.quote(value) if value else row.example)
    )


def _find_name(word: str, known: Collection[str], others: Mapping[str, tuple[str, ...]]) -> str:
    lower = word.lower()
    named = (name for name, words in others.items() if name in known and lower in words)
    return next(named, "") or suggest_name(lower, known)
