"""What a user probably means: the most similar name, or what a name of another tool is called here.

Pure. The tables list names of other tools: numactl, taskset, Slurm,
Open MPI, MPICH, torchrun, docker, vLLM. What a suggestion names must exist: `known` are the names that do.
"""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from ompbind.text import suggest_name

_VERBS = {
    "run": "start launch spawn mpirun mpiexec torchrun up", "run --log-dir DIR": "logs",
    "run --on-failure restart": "restart", "exec": "become srun bind",
    "plan": "show explain preview dry-run", "bench": "benchmark compare tune measure time hyperfine",
    "topo": "topology lstopo lscpu machine hardware", "ps": "ls list runs status top",
    "inspect": "threads verify affinity attach", "stop": "kill terminate cancel abort down",
    "rebind": "repair repin taskset move", "doctor": "check diagnose lint",
    "config": "options settings configuration", "completion": "complete completions", "--version": "version",
}  # fmt: skip
"""The verbs, and what users may call them."""

NO_VERBS = ("rm", "wait")
"""Verbs of other tools that ompbind has nothing for, although commands or verbs have such names."""

_WORDS = {
    "balanced": "distribute even slot node-balanced", "compact": "block pack packed fill",
    "spread": "scatter cyclic", "nodes": "node numanode ldom", "packages": "socket sockets package pkg",
    "l3": "llc ccx cache l3cache", "cores": "core cpucore", "close": "compact master primary",
    "thread": "cpu pu hwthread threads", "none": "no off false", "bind": "membind strict",
    "local": "localalloc default", "performance": "big p-core pcore p", "efficiency": "little e-core ecore e",
    "stop": "abort kill exit fail", "continue": "ignore keep-going", "restart": "always retry",
    "tag": "label prefix", "table": "text plain human", "gpu": "cuda nvidia rocm amd xpu",
    "nic": "network infiniband ib rdma hca", "gomp": "gnu gcc libgomp", "llvm": "clang libomp omp",
    "intel": "iomp libiomp5 icx", "docker": "podman",
}  # fmt: skip
"""Words that options accept, and words of other tools for them."""

OTHER_OPTIONS: tuple[tuple[str, str, str], ...] = (
    # how many ranks
    ("-np --np --n --num --count --ntasks --nprocs --nproc --procs --proc --num-processes --num_processes"
     " --nproc-per-node --nproc_per_node --ntasks-per-node --tasks-per-node -npernode --npernode -ppn --ppn"
     " --replicas --num-replicas --instances --copies --jobs -j --num-ranks --nranks --parallel",
     "-n {N}", ""),
    ("--scale", "-n N", ""),
    ("--workers --num-workers --num_workers --processes --nworkers",
     "-n {N}, or --processes-per-rank {N} if the command starts them itself", ""),
    ("--tp --tp-size --tensor-parallel-size --dp --dp-size --pp --pp-size --data-parallel-size"
     " --pipeline-parallel-size", "-n {N}, or the option of the server after --", ""),
    # which CPUs
    ("-N", "-n for ranks, or --mask for CPUs and NUMA nodes", ""),
    ("--cpus-per-task --cpus-per-proc --cpus-per-rank --cores-per-task --cores-per-rank", "-c {C}", ""),
    ("--num-threads --nthreads --omp-threads --omp-num-threads --threads-per-rank --threads-per-task",
     "-t {T}", ""),
    ("--cpus", "-c C for C cores per rank, or -m MASK", ""),
    ("--cpu --cpu-list --core-list --cpu-set --cpuset --cpuset-cpus --cpu-mask --cpumask --physcpubind -C"
     " --affinity --cpu-affinity", "-m {MASK}", ""),
    ("--pin --pinning --taskset", "-m MASK", ""),
    ("--cpunodebind --node --numa --numa-node --numa-nodes", "-m node:{0}", ""),
    ("--socket --package", "-m package:{0}", ""),
    ("--cpu-bind --cpu_bind --bind-to --binding --map-by --rankfile --distribution",
     "-m MASK for CPUs, -c for cores, -s nodes, packages, l3 or cores for domains, or --bind core", ""),
    ("--hint --nomultithread --no-hyperthreading --no-ht", "--smt 1", ""),
    ("--threads-per-core", "--smt {K}", ""),
    ("--use-hwthread-cpus --hyperthreading --ht", "--smt all", ""),
    ("--oversubscribe --overcommit -O", "--share", ""),
    ("--gpus-per-task --gpus-per-rank --gpus-per-proc", "--devices gpu --devices-per-rank {K}", ""),
    ("--gpus --gpu -G --gpus-per-node --gpu-bind --gres --numa-binding", "--devices gpu", ""),
    # memory
    ("--membind --mem-bind --mem_bind --cpuset-mems",
     "--memory bind, which limits memory to the NUMA nodes of the rank's CPUs", ""),
    ("--interleave -i", "--memory interleave", ""),
    ("--weighted-interleave", "--memory weighted", ""),
    ("--preferred", "--memory preferred", ""),
    ("--localalloc", "--memory local", ""),
    # the environment of ranks
    ("-x --export -genv --genv -e --setenv", "--env {NAME=VALUE}", ""),
    ("--port -p", "--env PORT={{rank+8000}}, or with --fill the option of the server after --", "--fill"),
    ("-wdir --wdir -wd --workdir --working-dir --working-directory --cwd -D", "--chdir {DIR}", ""),
    ("-w", "--chdir DIR, or -n N for a number of workers", ""),
    ("--standalone --master-addr --master_addr --master-port --master_port --rdzv-endpoint --rdzv_endpoint"
     " --rdzv-backend --rdzv_backend", "--rendezvous", ""),
    ("-J --job-name --rdzv-id --rdzv_id", "--run-id {NAME}", ""),
    ("--config-file --config_file --conf", "--config {FILE}", ""),
    ("-f --file", "--config {FILE} --group all", "--group"),
    ("--profile", "--preset {NAME}", ""),
    # output
    ("--hostfile --machinefile --hosts --nodelist --nodes --nnodes --node-rank --node_rank",
     "'mpirun --bind-to none --hostfile FILE ompbind exec -- CMD': run is for this machine only", "--memory"),
    ("--tag -l --label --tag-output -prepend-rank --prepend-rank", "--output tag", ""),
    ("-o --output-filename --log_dir --log-file --logs --redirects --tee", "--log-dir DIR", ""),
    ("-o --outfile", "'> FILE', which the shell opens", "--version"),
    ("--silent", "--quiet", ""),
    ("--report-bindings --display-map -print-rank-map --debug", "-v", ""),
    ("--test-only --simulate --do-not-launch", "--dry-run", ""),
    ("--json", "--export json", "--export"),
    ("--json", "--format json", "--format"),
    ("--json --format", "--report FILE for the results, or 'ompbind plan --format json'", "--report"),
    ("--json", "'ompbind plan --format json'", "--dry-run"),
    ("--output=json", "--report FILE", ""),
    ("--format=compose --format=docker-compose --format=k8s --format=kubernetes",
     "'ompbind help containers', which shows a manifest", "--format"),
    ("-a --all -q --quiet", "no option: ps lists all runs, also with --format json", "ps"),
    ("-a --all", "the name of each run: 'ompbind ps' lists them", "stop"),
    ("--joblog", "--report {FILE}", ""),
    ("-V", "--version", ""),
    ("--hardware -H", "'ompbind topo'", "--memory"),
    ("-p --pid", "'ompbind inspect {PID}'", "--problems"),
    # failures and time limits
    ("--time --time-limit", "--timeout TIME, as 90, 5m or 1h30m", ""),
    ("--no-kill --keep-going", "--on-failure continue", ""),
    ("--kill-after --stop-timeout --stop-grace-period", "--grace {TIME}", ""),
    ("--kill-on-bad-exit -K --halt --fail-fast", "--on-failure stop", ""),
    ("--max-restarts --max_restarts --restart --restarts --retries", "--on-failure restart:N", ""),
    ("--detach -d --background --daemon", "'ompbind run ... &', which the shell runs in the background",
     "--verify"),  # of `run` alone
    ("--check", "--verify", ""),
    # measuring
    ("--runs --warmup --export-json", "'ompbind bench', which repeats and compares runs", "--verify"),
    ("--runs -r --max-runs --min-runs --rounds", "--max-rounds {N}", ""),
    ("--warmup", "no option: the first run of each candidate is a warm-up", "--max-rounds"),
    ("--parameter-list --parameter-scan -L -P", "--vary OPTION=V1,V2", ""),
    ("--export-json", "--export json={FILE}", ""),
    ("--export-csv", "--export csv={FILE}", ""),
    ("--export-markdown", "--export markdown={FILE}", ""),
)  # fmt: skip
"""Options of other tools, what to write here, and the option that a verb must have for this.

By default that is the first word of the text. The value of the option replaces {WORD}.
"""

_NO_OPTIONS = ("--kill", "--end", "--slow", "--kind", "--plain")
"""Options of other tools that ompbind has nothing for, although one of its options has a similar name."""


def suggest_verb(word: str, known: Collection[str]) -> str:
    """Return the verb that a word probably means, "" if it is like none."""
    return _find_name(word.lower(), known, _VERBS)


def suggest_word(text: str, known: Collection[str]) -> str:
    """Return the value of an option that the first wrong word of a list probably means, "" for none."""
    wrong = next((word for part in text.split(",") if (word := part.strip()) not in known), "")
    return _find_name(wrong.lower(), known, _WORDS)


def suggest_option(name: str, value: str, known: Collection[str]) -> str:
    """Return what to write for an unknown option with a value, "" if nothing is similar."""
    if name in _NO_OPTIONS or not name.strip("-"):
        return ""
    long = [option.removeprefix("--") for option in known if option.startswith("--")]
    similar = suggest_name(name.lstrip("-").replace("_", "-"), long)
    return find_option(name, value, known) or (similar and f"--{similar}")


def make_hint(meant: str) -> str:
    """Return a hint with what to write: a question for one proposal, an instruction for several."""
    return f"write {meant}" if ", or " in meant or ": " in meant else f"did you mean {meant}?"


def find_option(name: str, value: str, known: Collection[str]) -> str:
    """Return what to write for an option of another tool, "" if it is none.

    Many tools accept long options with a single dash too.
    """

    def fill(part: re.Match[str]) -> str:
        return shlex.quote(value) if value and ("=" in value or "=" not in part[1]) else part[1]

    names = {name, f"-{name}"} if len(name) > len("-x") else {name}
    for others, text, needed in OTHER_OPTIONS:
        if names.intersection(others.split()) and (needed or text.split(" ")[0]) in known:
            filled = re.sub(r"(?<!{){([\w=]+)}", fill, text)
            return filled.replace("{{", "{").replace("}}", "}")
    return ""


def find_typed(name: str, args: Sequence[str]) -> tuple[str, str]:
    """Return the unknown option as it was typed, and its value, "" if it has none.

    To click, `-bind-to` is the option `-b`, maybe with the value `ind-to`.
    """
    name = name.partition("=")[0]
    for word, following in zip(args, (*args[1:], ""), strict=False):
        typed, equals, value = word.partition("=")
        if typed == name or (len(name) == 2 and name[1] != "-" and typed.startswith(name)):
            return typed, value if equals or following.startswith("-") else following
        if word == "--":
            break
    return name, ""


def _find_name(word: str, known: Collection[str], others: Mapping[str, str]) -> str:
    named = (name for name, words in others.items() if name.split()[0] in known and word in words.split())
    return next(named, "") or suggest_name(word, known)
