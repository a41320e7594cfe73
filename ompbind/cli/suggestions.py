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
    "l3": "llc ccx ccd cache l3cache", "cores": "core cpucore", "close": "compact master primary",
    "thread": "cpu pu hwthread threads", "none": "no off false", "bind": "membind strict",
    "local": "localalloc default", "performance": "big p-core pcore p", "efficiency": "little e-core ecore e",
    "stop": "abort kill exit fail", "continue": "ignore keep-going", "restart": "always retry",
    "tag": "label prefix", "table": "text plain human", "gpu": "cuda nvidia rocm amd xpu",
    "nic": "network infiniband ib rdma hca", "gomp": "gnu gcc libgomp", "llvm": "clang libomp omp",
    "intel": "iomp libiomp5 icx", "docker": "podman", "slurm": "srun sbatch", "fast": "frequency clock turbo",
    "compose": "docker-compose", "kubernetes": "kubectl yaml",
}  # fmt: skip
"""Words that options accept, and words of other tools for them."""

OTHER_OPTIONS: tuple[tuple[str, str, str], ...] = (
    # how many ranks
    ("--np --n --num --count --ntasks --nprocs --nproc --procs --proc --num-processes --nproc-per-node"
     " --ntasks-per-node --tasks-per-node --npernode --ppn --replicas --num-replicas --instances --copies"
     " --jobs -j --num-ranks --nranks --parallel", "-n {N}", ""), ("--scale", "-n N", ""),
    ("--ranks=(?:l3|cc[dx])", "-n auto -s l3", ""), (r"--ranks=(\d+(?:,\d+)+)", r"--vary ranks=\1", ""),
    ("--ranks=(?:node|numa|package|socket)s?", "-n auto -s nodes, or -n auto -s packages", ""),
    ("--workers --num-workers --processes --nworkers", "-n {N}, or --processes-per-rank {N} if the command"
     " starts them itself", ""),
    ("--tp --tp-size --tensor-parallel-size --dp --dp-size --pp --pp-size --data-parallel-size"
     " --pipeline-parallel-size", "-n {N}, or the option of the server after --", ""),
    # which CPUs
    (r"-N=(?:\D.*)? --shell", "no option: only 'sh -c ...' starts a shell", "--max-rounds"),
    ("-N=0", "-m node:0", ""), ("-N", "-n {N} for ranks; -m node:{0} for CPUs of a NUMA node", ""),
    ("--ntasks-per-socket --npersocket", "-s packages, and -n for the ranks of all packages", ""),
    ("--cpus-per-task --cpus-per-proc --cpus-per-rank --cores-per-task --cores-per-rank", "-c {C}", ""),
    ("--num-threads --nthreads --omp-threads --omp-num-threads --threads-per-rank --threads-per-task",
     "-t {T}", ""), ("--cpus", "-c C for C cores per rank, or -m MASK", ""),
    ("--cpu --cpu-list --core-list --cpu-set --cpuset --cpuset-cpus --cpu-mask --cpumask --physcpubind -C"
     " --affinity --cpu-affinity", "-m {MASK}", ""), ("--pin --pinning --taskset", "-m MASK", ""),
    ("--exclude --exclude-cpus", "-m MASK, with ^ before each item to exclude", ""),
    ("--core-type --cpu-type --kind --pcores --p-cores --ecores --e-cores",
     "--core-kind performance, or --core-kind efficiency", ""),
    ("--cpunodebind --node --numa --numa-node --numa-nodes", "-m node:{0}", ""),
    ("--socket --package", "-m package:{0}", ""), (r"--cpu-bind=[\d|]+", "-m {MASK}", ""),
    ("--bind-to=none --cpu-bind=none", "-m none to bind no rank, or this option before 'ompbind exec'", ""),
    (r"--map-by=.*(?:socket|package):PE=(\d+)", r"-s packages -c \1", ""),
    (r"--map-by=.*numa:PE=(\d+)", r"-s nodes -c \1", ""), (r"--map-by=.*PE=(\d+).*", r"-c \1", ""),
    ("--bind-to=(?:socket|package) --map-by=.*(?:socket|package) --cpu-bind=.*sockets", "-s packages", ""),
    ("--bind-to=numa --map-by=.*numa --cpu-bind=.*ldoms", "-s nodes", ""),
    ("--bind-to=l3cache --map-by=.*l3cache", "-s l3", ""),
    ("--bind-to=hwthread --cpu-bind=.*threads", "--bind thread", ""),
    ("--bind-to=core --cpu-bind=.*cores", "--bind core", ""),
    ("--rankfile --rank-by", "-m MASK, as '0-3|4-7' with a part for each rank", ""),
    ("--distribution", "-s compact for block, or -s spread for cyclic", ""),
    ("--cpu-bind --bind-to --binding --map-by",
     "-m MASK for CPUs, -c for cores, or -s for domains: 'ompbind help coming-from' has examples", ""),
    ("--hint=multithread --use-hwthread-cpus --hyperthreading --ht", "--smt all", ""),
    ("--hint=nomultithread --nomultithread --no-hyperthreading --no-ht", "--smt 1", ""),
    (r"--bind=(close|spread)", r"--bind thread --proc-bind \1", ""),
    ("--hint", "--smt 1 for nomultithread, or --smt all for multithread", ""),
    ("--threads-per-core", "--smt {K}", ""), ("-S --core-spec", "--reserve-total {K}", ""),
    ("--oversubscribe --overcommit -O", "--share", ""),
    ("--gpus-per-task --gpus-per-rank --gpus-per-proc", "--devices gpu --devices-per-rank {K}", ""),
    ("--gpus --gpu -G --gpus-per-node --gpu-bind --gres --numa-binding", "--devices gpu", ""),
    # memory
    ("--membind --mem-bind --cpuset-mems",
     "--memory bind, which limits memory to the NUMA nodes of the rank's CPUs", ""),
    ("-i --ignore-failure", "no option: a failed run excludes its candidate only", "--max-rounds"),
    ("--interleave -i", "--memory interleave", ""), ("--weighted-interleave", "--memory weighted", ""),
    ("--preferred", "--memory preferred, which prefers the NUMA nodes of the rank's CPUs", ""),
    (r"--memory=(?:[a-z]+:)?(\d[\d,-]*)",
     r"'numactl --membind \1 ompbind run ...': --memory uses the NUMA nodes of the rank's CPUs", "--memory"),
    ("--localalloc", "--memory local", ""), ("--perf", "--wrap 'perf stat -o perf.{{rank}}'", ""),
    # the environment of ranks
    ("--export", "--env NAME=VALUE: ranks inherit all other variables", ""),
    ("-x --genv -e --setenv", "--env {NAME=VALUE}", ""),
    ("--port -p", "--env PORT={{rank+8000}}, or with --fill the option of the server after --", "--fill"),
    ("--wdir --wd --workdir --working-dir --working-directory --cwd -D", "--chdir {DIR}", ""),
    (r"-w=\d+ --warmup", "no option: the first run of each candidate is a warm-up", "--max-rounds"),
    ("-w", "--chdir DIR, or -n N for a number of workers", ""),
    ("--standalone --master-addr --master-port --rdzv-endpoint --rdzv-backend", "--rendezvous", ""),
    ("-J --job-name --rdzv-id", "--run-id {NAME}", ""), ("--config-file --conf", "--config {FILE}", ""),
    ("-f --file", "--config {FILE} --group all", "--group"), ("--profile", "--preset {NAME}", ""),
    # output
    ("--nodes", "-s nodes for NUMA nodes, or 'mpirun --bind-to none ompbind exec -- CMD' for machines", ""),
    ("--hostfile --machinefile --host --hosts -H=.+ --nodelist --nnodes --node-rank",
     "'mpirun --bind-to none --hostfile FILE ompbind exec -- CMD': ompbind is for one machine", "--memory"),
    ("--multi-prog", "--name for each command: 'ompbind help groups' has examples", ""),
    ("--tag -l --label --tag-output --prepend-rank", "--output tag", ""),
    ("-o --output-filename --output-dir --outdir --log-file --logs --log --stdout --redirects --tee",
     "--log-dir DIR", ""), ("--overwrite", "--force", ""),
    ("-o --outfile", "'> FILE', which the shell opens", "--version"), ("--silent", "--quiet", ""),
    ("--report-bindings --display-map --print-rank-map --debug", "-v", ""),
    ("--report-bindings --display-map", "no option: plan shows the CPUs of each rank", "plan"),
    ("--test-only --simulate --do-not-launch", "--dry-run", ""), ("--json", "--export json", "--export"),
    ("--json", "--format json", "--format"),
    ("--json --format", "--report FILE for the results, or 'ompbind plan --format json'", "--report"),
    ("--json", "'ompbind plan --format json'", "--dry-run"), ("--output=json", "--report FILE", ""),
    ("-a --all -q --quiet", "no option: ps lists all runs, also with --format json", "ps"),
    ("-a --all", "the name of each run: 'ompbind ps' lists them", "stop"),
    ("--joblog", "--report {FILE}", ""), ("-V", "--version", ""),
    ("--hardware -H", "'ompbind topo'", "--memory"), ("-p --pid", "'ompbind inspect {PID}'", "--problems"),
    ("-p -cp -pc -acp -apc --pid", "-m MASK before the PID, or 'ompbind inspect PID' for its CPUs", "rebind"),
    ("--reset", "-m all", "rebind"),
    # failures and time limits
    (r"--threads=(\d+):(\d+):(\d+) --time=(\d+):(\d+):(\d+)", r"--timeout \1h\2m\3s", ""),
    ("--time --time-limit", "--timeout TIME, as 90, 5m or 1h30m", ""),
    ("--no-kill --keep-going", "--on-failure continue", ""), ("--check", "--verify", ""),
    ("--kill-after --stop-timeout --stop-grace-period", "--grace {TIME}", ""),
    ("--kill-on-bad-exit -K --halt --fail-fast", "--on-failure stop", ""),
    ("--max-restarts --restart --restarts --retries", "--on-failure restart:N", ""),
    ("--detach -d --background --daemon", "'ompbind run ... &', which the shell runs in the background",
     "--verify"),  # of `run` alone
    (r"--on-failure=(?:retry|always|on-failure):(\d+)", r"--on-failure restart:\1", ""),
    # measuring
    ("--compare --baseline --threshold", "--fail-above 5% --show OLD NEW, for files of --results", "--show"),
    ("--repeat --runs --warmup --export-json", "'ompbind bench', which repeats and compares", "--verify"),
    ("--repeat --runs -r --max-runs --min-runs --rounds", "--max-rounds N, 8 or more; it may end early", ""),
    ("--parameter-list --parameter-scan -L -P", "--vary OPTION=V1,V2", ""),
    ("--export-json", "--export json={FILE}", ""), ("--export-csv", "--export csv={FILE}", ""),
    ("--export-markdown", "--export markdown={FILE}", ""),
)  # fmt: skip
"""Options of other tools, what to write here, and the option that a verb must have for this.

By default that is the first word of the text. The value of the option replaces {WORD}. With `=PATTERN`, the
value must match; its groups replace \\1.
"""

_NO_OPTIONS = ("--kill", "--end", "--slow", "--plain")
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
    short, _, number = re.sub(r"^(-\w)(\d)", r"\1 \2", name).partition(" ")  # -S2
    return find_option(short, number or value, known) or (similar and f"--{similar}")


def make_hint(meant: str) -> str:
    """Return a hint with what to write: a question for one proposal, an instruction for several."""
    return f"write {meant}" if re.search(", or |: |; ", meant) else f"did you mean {meant}?"


def find_option(name: str, value: str, known: Collection[str]) -> str:
    """Return what to write for an option of another tool, "" if it is none.

    Many tools accept long options with a single dash too. `--name=value` is an option of ompbind with a wrong
    value: only rows with a pattern are for it.
    """

    def fill(part: re.Match[str]) -> str:
        return shlex.quote(value) if value and ("=" in value or "=" not in part[1]) else part[1]

    name, is_own, given = name.partition("=")
    value, anything = value or given, "" if is_own else "(?s:.*)"
    name = name.replace("_", "-")
    names = {name, f"-{name}"} if len(name) > len("-x") else {name}
    if value.startswith("map_cpu:"):
        value = value.removeprefix("map_cpu:").replace(",", "|")
    for others, text, needed in OTHER_OPTIONS:
        typed = (other.partition("=") for other in others.split() if (needed or text.split(" ")[0]) in known)
        matches = (re.fullmatch(form or anything, value) for other, _, form in typed if other in names)
        if match := next(filter(None, matches), None):
            text = match.expand(text) if match.groups() else text
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
