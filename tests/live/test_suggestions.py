"""Names of other tools and misspelled names have a suggestion that exists."""

import shlex

import pytest

from ompbind.cli.options import find_options
from ompbind.cli.suggestions import (
    OTHER_OPTIONS,
    suggest_option,
    suggest_verb,
    suggest_word,
)
from ompbind.cli.verbs import VERBS
from ompbind.planning.strategies.strategies import STRATEGIES
from tests.cli.command_lines import call
from tests.tables import rows

OPTIONS = (
    "-n", "--ranks", "-c", "--cores", "-m", "--mask", "-s", "--strategy", "-t", "--threads", "--smt",
    "--share", "--memory", "--env", "--chdir", "--output", "-v", "--verbose", "--timeout", "--run-id",
    "--rendezvous", "--on-failure", "--devices", "--quiet", "--fill", "--log-dir", "--config", "--preset",
    "--dry-run", "--grace", "--report", "--report-env", "--strict", "--sibling", "--plan", "--proc-bind",
    "--allow-partial", "--bind", "--wrap", "--keep-env", "--keep-descendants",
)  # fmt: skip


VERBS_MEANT = {
    "benchmark": "bench", "tune": "bench", "start": "run", "runn": "run", "mpirun": "run", "Plan": "plan",
    "lstopo": "topo", "list": "ps", "check": "doctor", "inspct": "inspect", "rnu": "run", "kill": "stop",
    "rm": "", "wait": "", "push": "", "monitor": "", "input": "", "python": "", "": "",
}  # fmt: skip
STRATEGIES_MEANT = {
    "numa": "nodes", "node": "nodes", "socket": "packages", "sockets": "packages", "Package": "packages",
    "llc": "l3", "l3cache": "l3", "core": "cores", "scatter": "spread", "block": "compact",
    "balance": "balanced", "best": "", "l9": "", "l33": "l3",
}  # fmt: skip
OPTIONS_MEANT = {
    ("-np", "4"): "-n 4", ("--nproc-per-node", "auto"): "-n auto", ("--cpus-per-task", "8"): "-c 8",
    ("--tensor-parallel-size", "2"): "-n 2, or the option of the server after --",
    ("--workers", "8"): "-n 8, or --processes-per-rank 8 if the command starts them itself",
    ("--cpus", "4"): "-c 4 for 4 cores per rank, or -m 4 for CPU 4", ("--cpus", "0-3"): "-m 0-3",
    ("--cpus", ""): "-c C for C cores per rank, or -m MASK", ("--physcpubind", "0-3,8"): "-m 0-3,8",
    ("--cpu-list", "0|1"): "-m '0|1'", ("--cpunodebind", "0,2-3"): "-m node:0,node:2-3",
    ("--cpu-bind", "none"): "-m none", ("--cpu-bind", "verbose,map_cpu:0,2"): "-m '0|2'",
    ("--cpu-bind", "mask_cpu:0x3,0xc"): "-m '0x3|0xc'", ("--cpu-bind", "ldoms"): "-s nodes",
    ("--bind-to", "socket"): "-s packages", ("--bind-to", "l3cache"): "-s l3",
    ("--map-by", "ppr:1:numa"): "-s nodes", ("--map-by", "slot"): "-s balanced",
    ("-cpu-bind", "core"): "--bind core", ("--membind", "0"): "--memory bind",
    ("--bind-to", "hwthread"): "--bind thread", ("--map-by", "core"): "-s cores",
    ("--cpuset-mems", "0"): "--memory bind, which limits memory to the NUMA nodes of the rank's CPUs",
    ("-N", "2"): "-n 2", ("-N", "0"): "-m node:0", ("-N", "0,1"): "-m node:0,node:1", ("-N", ""): "-n N",
    ("--node", "0"): "-m node:0", ("--socket", "0"): "-m package:0", ("-w", "/srv"): "--chdir /srv",
    ("--time", "00:01:00"): "--timeout 1m", ("--time", "1-02:30"): "--timeout 1d2h30m",
    ("--time", "90:05"): "--timeout 90m5s", ("--time", "5m"): "--timeout 5m",
    ("--time", ""): "--timeout TIME",
    ("--time", "10"): "--timeout 10m for minutes, or --timeout 10 for seconds",
    ("--nomultithread", ""): "--smt 1", ("--no-kill", ""): "--on-failure continue", ("-p", "serve"): "",
    ("--hint", "nomultithread"): "--smt 1", ("--threads-per-core", "2"): "--smt 2",
    ("--gpus-per-task", "2"): "--devices gpu --devices-per-rank 2",
    ("--gpu-bind", "closest"): "--devices gpu", ("-x", "A=b c"): "--env 'A=b c'",
    ("-l", ""): "--output tag", ("--standalone", ""): "--rendezvous", ("-j", "4"): "-n 4",
    ("--tag", ""): "--output tag",
    ("--port", "8000"): "--env PORT={rank+8000}, or with --fill the option of the server after --",
    ("-p", "80:80"): "--env PORT={rank+8000}, or with --fill the option of the server after --",
    ("--pin", "0-3"): "-m 0-3", ("--hyperthreading", ""): "--smt all",
    ("--json", ""): "'ompbind plan --format json'", ("--debug", ""): "-v",
    ("--profile", "serve"): "--preset serve", ("--config-file", "a.toml"): "--config a.toml",
    ("--kill-on-bad-exit", ""): "--on-failure stop", ("--max-restarts", "3"): "--on-failure restart:3",
    ("--restart", "on-failure:5"): "--on-failure restart:5",
    ("--restart", "always"): "--on-failure restart", ("--restart", "no"): "--on-failure stop",
}  # fmt: skip
"""The name and the value of an option of another tool → what to write."""

OF_A_VERB = {
    ("--json", "run"): "'ompbind plan --format json'", ("--json", "exec"): "'ompbind plan --format json'",
    ("--json", "plan"): "--format json", ("--json", "ps"): "--format json",
    ("--json", "bench"): "--export json", ("--runs", "bench"): "--max-rounds 5", ("--runs", "exec"): "",
    ("--warmup", "run"): "'ompbind bench', which repeats and compares runs", ("--check", "run"): "--verify",
    ("--detach", "run"): "'ompbind run ... &', which the shell runs in the background", ("-d", "plan"): "",
    ("--export-json", "bench"): "--export json=5", ("--pid", "inspect"): "'ompbind inspect 5'",
    ("--port", "plan"): "", ("--time", "topo"): "", ("--silent", "plan"): "",
}  # fmt: skip
"""The name of an option with the value 5, and a verb → what to write."""

MISSPELLED = {
    "--thread": "--threads", "--run_id": "--run-id", "-ranks": "--ranks", "--evn": "--env",
    "--mask-": "--mask", "--sttrategy": "--strategy", "--strat": "--strategy", "--repor": "--report",
    "--dry": "", "--keep": "", "--keep-e": "--keep-env", "--keep-desecndant": "--keep-descendants",
    "--zzz": "", "--runs": "", "--rm": "", "--file": "", "--kill": "", "--end": "", "--all": "",
    "--ports": "", "--detach": "", "--warmup": "", "--kind": "", "--plain": "",
    "--host": "", "--color": "", "--repeat": "",
    "--start": "", "--load": "", "--head": "", "--mem": "", "-d": "", "-z": "", "-it": "", "--": "",
}  # fmt: skip


def test_verbs_and_strategies():
    assert {word: suggest_verb(word, VERBS) for word in VERBS_MEANT} == VERBS_MEANT
    assert {word: suggest_word(word, STRATEGIES) for word in STRATEGIES_MEANT} == STRATEGIES_MEANT


def test_words_of_options():
    for word, known, meant in (
        ("compact", ("close", "spread"), "close"), ("membind", ("local", "bind", "preferred"), "bind"),
        ("p-core", ("performance", "efficiency", "all"), "performance"), ("jsn", ("table", "json"), "json"),
        ("abort", ("stop", "continue"), "stop"), ("cuda", ("none", "gpu", "nic"), "gpu"),
        ("rdma", ("none", "gpu", "nic"), "nic"), ("gcc", ("auto", "gomp", "llvm"), "gomp"),
        ("socket", ("rank", "core"), ""),
    ):  # fmt: skip
        assert suggest_word(word, known) == meant


def test_options():
    assert {option: suggest_option(*option, OPTIONS) for option in OPTIONS_MEANT} == OPTIONS_MEANT
    assert {name: suggest_option(name, "", OPTIONS) for name in MISSPELLED} == MISSPELLED


def test_an_option_that_the_verb_does_not_have_is_not_suggested():
    for (name, verb), written in OF_A_VERB.items():
        known = [known for option in find_options(verb) for known in option.names]
        assert suggest_option(name, "5", known) == written, (name, verb)


def test_one_wrong_letter_is_found():
    """One letter is missing, wrong or too many, or two are swapped; another name may be as similar."""
    options = find_options("run")
    names = [name for option in options for name in option.names]
    typos = [typo for option in options if len(option.key) >= 4 for typo in make_typos(option.key)]
    assert not [typo for typo in typos if not suggest_option(f"--{typo}", "", names)]


def make_typos(word):
    """Return a word with one letter left out, doubled, replaced, or swapped with the next."""
    for at, letter in enumerate(word):
        before, after = word[:at], word[at + 1 :]
        yield from (before + after, before + letter + letter + after)
        yield from (f"{before}{other}{after}" for other in "xz")
        if after:
            yield before + after[0] + letter + after[1:]


def test_every_row_names_an_option_and_no_option_of_ompbind_is_another_tools():
    known = {name for verb in VERBS for option in find_options(verb) for name in option.names}
    assert known & {name for row in OTHER_OPTIONS for name in row.names} == {"--export"}  # also Slurm's
    for row in OTHER_OPTIONS:
        for value in ("", "4", "a=b", "none", "nomultithread"):
            written = row.read(value) if row.read else row.write.format(value=value)
            needed = row.needs or written.split(" ")[0]
            assert needed in known or (row.names[0], needed) in {("--hint", ""), ("-V", "--version")}, (
                row.names
            )


@pytest.mark.parametrize(
    ("line", "hint"),
    rows("""
    run --json                 | did you mean 'ompbind plan --format json'?
    run --runs 3 -- x          | did you mean 'ompbind bench', which repeats and compares runs?
    run -genv A 1 -- x         | did you mean --env A=1?
    run -genv A=1 x            | did you mean --env A=1?
    run -n=2 -- x              | write -n 2
    run --smt=off -- x         | did you mean --smt 1?
    kill                       | did you mean 'stop'?
    run --help-al              | did you mean --help-all?
    topo --help-all            | see 'ompbind topo --help'
    plan --dry-run             | --dry-run is an option of run, exec, bench, rebind
    version                    | did you mean '--version'?
    sh -c true                 | to start a command, write 'ompbind run -- sh'
    run -- 'echo $RANK; date'  | a command with shell syntax needs a shell: -- sh -c 'echo $RANK; date'
    """),
)
def test_errors_have_the_hint(line, hint):
    done = call(*shlex.split(line))
    assert " ".join(done.stderr.split()).endswith(f"hint: {hint}")
    assert done.returncode == (127 if "$" in line else 125 if line.startswith("run ") else 2)
