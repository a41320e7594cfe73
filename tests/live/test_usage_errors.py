"""Usage errors name the option or variable that is wrong, and what is meant by names of other tools."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from ompbind.cli import VERBS
from ompbind.cli.options import find_options
from ompbind.cli.suggestions import OTHER_OPTIONS, find_option, suggest_option, suggest_verb, suggest_word
from ompbind.planning.strategies import STRATEGIES
from tests.cli.command_lines import call
from tests.live.conftest import one_line
from tests.tables import rows


@pytest.mark.parametrize(("line", "message"), rows("""
    run                                 | the command to start is missing hint: write it after --;
    run -t 0 -- true                    | -t/--threads: '0' is not a whole number of at least 1
    plan -n                             | option '-n' requires an argument
    exec --timeout 5 true               | no such option '--timeout' hint: --timeout is an option of
    plan --devices auto,gpu             | --devices: 'auto,gpu' is not a kind of device
    -n 4                                | no such option '-n' hint: write options after the verb: 'ompbind run
    plan -n 2 --cpu-bind=map_cpu:0,4 {T} | no such option '--cpu-bind' hint: did you mean -m '0|4'?
    run --cpu-bind none x | no such option '--cpu-bind' hint: write -m none to bind no rank, or this option
    plan -N 0 {T}                       | no such option '-N' hint: did you mean -m node:0?
    plan -S2                            | no such option '-S2' hint: did you mean --reserve-total 2?
    run -t 00:01:30 x                   | -t/--threads: '00:01:30' ... hint: did you mean --timeout 00h01m30s?
    plan --bind close     | --bind: 'close' ... hint: did you mean --bind thread --proc-bind close?
    plan --memory bind:1                | --memory: 'bind:1' ... hint: write 'numactl --membind 1 ompbind run
    plan --format srun                  | --format: 'srun' ... hint: did you mean 'slurm'?
    bench -n 1,2 x                      | -n/--ranks: '1,2' ... hint: did you mean --vary ranks=1,2?
    rebind -cp 1 4711                   | -c/--cores: 'p' ... hint: write -m MASK before the PID, or
    topo sample:two-sockets | unexpected extra argument ... did you mean --topology sample:two-sockets?
    plan --format jsn                   | --format: 'jsn' is not table, picture, svg, json, mask, env, sh,
    run --run-id '' true                | --run-id: the name of a run is missing
    run --dry-run=yes -- true           | option '--dry-run' does not take a value hint: see 'ompbind run
    plan --rank 0                       | --rank requires
    plan -n 2 --share --format sh       | choose a rank with --rank, 0 to 1
    plan -n 2 --share --format sh --rank 2 | --rank 2: the plan has ranks 0 to 1
    plan --topology /nowhere            | topology source '/nowhere' does not exist
    run --runs 3 -- x                   | no such option '--runs' hint: did you mean 'ompbind bench', which
    run -n=2 -- x    | -n/--ranks: '=2' is wrong: write auto or a whole number of at least 1 hint: write -n 2
    topo --help-all                     | no such option '--help-all' hint: see 'ompbind topo --help'
    version                             | no such command 'version' hint: did you mean '--version'?
    sh -c true                     | no such command 'sh' hint: to start a command, write 'ompbind run -- sh'
    run --report --verify -- true | --report: the value is missing: the next word is --verify hint: write
    run --log-dir -- true | --log-dir: the value is missing: the next word is -- hint: write --log-dir=DIR
    run --env-file -n2 --env-file=y x   | --env-file: the value is missing: the next word is -n2
    run --name a -- x : --env --name -- y | --env: the value is missing: the next word is --name
    exec --chdir --help-all -- true | --chdir: the value is missing: the next word is --help-all hint: write
    run -o out.txt -- x                 | no such option '-o' hint: did you mean --log-dir DIR?
    plan -o out.json | no such option '-o' hint: did you mean '> FILE', which the shell opens?
    run --name a --ready 9101 x | --ready: '9101' is a port or a text hint: write tcp:9101, or text:9101
    run –n 2 -- true                    | –n begins with a dash (–), not with a hyphen (-) hint: write -n
    run -v —ranks=2 -- true | —ranks=2 begins with a dash (—), not with a hyphen (-) hint: write --ranks=2
    run --output json x | --output: 'json' is not inherit, tag or files hint: did you mean --report FILE?
    run --grace 1h30 x | --grace: '1h30' is not a time: write seconds, or for example 90s, 1h30m or 1.5h hint:
    run --env FOO x | --env: 'FOO' is not NAME=VALUE hint: omit it: ranks inherit all variables
    stop --all | no such option '--all' hint: write the name of each run: 'ompbind ps' lists them
    bench --runs 3 x      | no such option '--runs' hint: write --max-rounds N, 8 or more; it may
    run -cpunodebind=0 x | -c/--cores: 'punodebind=0' is not a whole number of at least 1 hint: did you mean
    run -m core0 x | 'core0' is not a number core0 ^^^^^ hint: did you mean -m core:0?
    run -m nod x | 'nod' is not a number nod ^^^ hint: --mask names CPUs, for example -m '
    run -m socket:0 x | unknown selector 'socket' socket:0 ^^^^^^ hint: did you mean -m package:0?
    run -- 'echo a' | command not found: echo a ... without quotes around all of it: -- echo a, or -- sh -c
    run -c 1 -- python3 -m x : -c 1 -- y | ':' and -c are words of the command python3, and begin no
    bench --vary t=1,2 x | --vary: 't' is not the long name of an option that ... did you mean threads?
    plan -m P --topology sample:core-i9 | 'P' is not a number P ^ hint: did you mean --core-kind performance?
    plan -m P {T} | 'P' is not a number P ^ hint: --mask names CPUs, for
    plan -m all-0 {T} | the word 'all' stands alone, without a selector ... did you mean -m 'all,^0'?
    plan -n ccd | -n/--ranks: 'ccd' is wrong ... did you mean -n auto -s l3?
    plan --topology 'core:2 pu:2' | topology source ... hint: write 'synthetic:core:2 pu:2'
    run --on-failure retry:2 x | --on-failure: ... did you mean --on-failure restart:2?
    run --name a -- x : --ready tcp:80 -- y | the group of 'y' has no name
    bench 'sleep 1' 'sleep 2' | command not found: sleep 1 ... for two: --vary env=APP=./a,APP=./b --
    run -- 'a; $B'       | command not found: a; $B hint: a command with shell syntax needs a shell: -- sh -c
    """))  # fmt: skip
def test_usage_errors(line, message):
    words = shlex.split(line.replace("{T}", "--topology sample:two-sockets"))
    done = call(*words)
    assert done.returncode == (2 if words[0] not in ("run", "exec") else 127 if "found" in message else 125)
    assert done.stdout == ""
    usage, _, error = done.stderr.partition("ompbind: error: ")
    assert usage.startswith("Usage: ompbind ") == message.startswith(("no such", "unexpected"))
    begin, _, rest = message.partition(" ... ")
    assert (begin, rest in one_line(error)) == (" ".join(error.split())[: len(begin)], True), error


def test_cores_that_look_like_numbers_of_cpus():
    """`taskset -c` has a list of CPUs."""
    for text, hint in (
        ("0", "-m 0"), ("0-1", "-m 0-1"), ("0,2", "-m 0,2"), ("0x3", "-m 0x3"), ("0|1", "-m '0|1'"),
        ("x1", "--help'"), ("all", "--help'"), ("1_0", "--help'"), ("9" * 12, "--help'"),
    ):  # fmt: skip
        done = call("plan", "--topology", "synthetic:core:4", "-n", str(1 + text.count("|")), "-c", text)
        assert (done.returncode, done.stderr.rstrip().endswith(f" {hint}")) == (2, True), done.stderr


def test_masks_of_other_tools():
    """likwid-pin, hwloc, Slurm, OMP_PLACES: a mask for one rank, and for two."""
    for text, one, two in (
        ("S0:0-3", "package:0.core:0-3", ""), ("M0:0@M1:0", "node:0.core:0,node:1.core:0", ""),
        ("N1", "node:1", ""), ("socket1", "package:1", ""), ("L3Cache:0", "l3:0", ""), ("ALL", "all", ""),
        ("!0-1", "'^0-1'", ""), ("core:all", "all", ""), ("map_cpu:0,8", "'0,8'", "'0|8'"),
        ("mask_cpu:0xf,0xf0", "'0xf,0xf0'", "'0xf|0xf0'"), ("{0:4},{4:4}", "'0-3,4-7'", "'0-3|4-7'"),
        ("0-3;4-7", "'0-3,4-7'", "'0-3|4-7'"), ("0-3 4-7", "'0-3,4-7'", "'0-3|4-7'"),
        ("{0},{1,2}", "'0,1,2'", "'0|1,2'"),
    ):  # fmt: skip
        for ranks, mask in (("1", one), ("2", two or one)):
            done = call("plan", "--topology", "sample:two-sockets", "-n", ranks, "-m", text)
            assert done.stderr.endswith(f"hint: did you mean -m {mask}?\n"), (done.stderr, mask)


def test_a_long_value_is_cut():
    error = one_line(call("plan", "-n", "9" * 5000).stderr)
    assert f"-n/--ranks: '{'9' * 57}...' is too large" in error


def test_misuse_exits_with_2(ompbind):
    for args in ([], ["bogus"], ["topo", "x"], ["--config", "run", "plan"]):
        done = ompbind(*args)
        assert (done.returncode, done.stdout, bool(done.stderr)) == (2, "", True)


OPTIONS = [name for option in find_options("run") for name in option.names]

VERBS_MEANT = {
    "benchmark": "bench", "runn": "run", "mpirun": "run", "Plan": "plan", "lstopo": "topo",
    "inspct": "inspect", "rnu": "run", "kill": "stop", "rm": "", "wait": "", "push": "", "python": "", "": "",
    "logs": "run --log-dir DIR", "restart": "run --on-failure restart",
}  # fmt: skip
STRATEGIES_MEANT = {
    "node": "nodes", "sockets": "packages", "Package": "packages", "l3cache": "l3", "scatter": "spread",
    "balance": "balanced", "best": "", "l9": "", "l33": "l3",
}  # fmt: skip
OPTIONS_MEANT = {
    ("-np", "4"): "-n 4", ("--nproc-per-node", "auto"): "-n auto", ("--cpus-per-task", "8"): "-c 8",
    ("--workers", "8"): "-n 8, or --processes-per-rank 8 if the command starts them itself",
    ("--cpus", "4"): "-c C for C cores per rank, or -m MASK", ("--cpu-list", "0|1"): "-m '0|1'",
    ("--cpunodebind", "1"): "-m node:1", ("--node", ""): "-m node:0", ("-x", "A=b c"): "--env 'A=b c'",
    ("-x", ""): "--env NAME=VALUE", ("-e", "FOO"): "--env NAME=VALUE", ("--scale", "web=2"): "-n N",
    ("-f", "a.toml"): "--config a.toml --group all", ("--fail-fast", ""): "--on-failure stop",
    ("--gpus-per-task", "2"): "--devices gpu --devices-per-rank 2",
    ("--time", "10"): "--timeout TIME, as 90, 5m or 1h30m", ("--time", "00:01:00"): "--timeout 00h01m00s",
    ("--bind-to", "hwthread"): "--bind thread", ("--bind-to", "socket"): "-s packages",
    ("--map-by", "ppr:1:numa"): "-s nodes", ("--map-by", "socket:PE=2"): "-s packages -c 2",
    ("--cpu-bind", "verbose,cores"): "--bind core", ("--hint", "multithread"): "--smt all",
    ("--hint", "memory_bound"): "--smt 1 for nomultithread, or --smt all for multithread",
    ("--export", "ALL,A=1"): "--env NAME=VALUE: ranks inherit all other variables",
    ("-l", ""): "--output tag", ("-H", ""): "'ompbind topo'",
}  # fmt: skip
"""The name and the value of an option of another tool → what to write."""

OF_A_VERB = {
    ("--json", "exec"): "'ompbind plan --format json'", ("--json", "ps"): "--format json",
    ("--json", "bench"): "--export json", ("--runs", "exec"): "",
    ("--format", "run"): "--report FILE for the results, or 'ompbind plan --format json'",
    ("--detach", "run"): "'ompbind run ... &', which the shell runs in the background", ("-d", "plan"): "",
    ("--export-json", "bench"): "--export json=5", ("--pid", "inspect"): "'ompbind inspect 5'",
    ("--port", "plan"): "", ("--silent", "plan"): "",
    ("-H", "exec"): "'mpirun --bind-to none --hostfile FILE ompbind exec -- CMD': ompbind is for one machine",
}  # fmt: skip
"""The name of an option with the value 5, and a verb → what to write."""

NONE_MEANT = ("--keep", "--rm", "--kill", "--end", "--all", "--plain", "-z", "-it", "--")
MISSPELLED = {
    "--run_id": "--run-id", "-ranks": "--ranks", "--evn": "--env", "--strat": "--strategy",
    "--keep-e": "--keep-env", "--keep-desecndant": "--keep-descendants", **dict.fromkeys(NONE_MEANT, ""),
}  # fmt: skip


def test_names_of_other_tools_and_misspelled_names():
    assert {word: suggest_verb(word, VERBS) for word in VERBS_MEANT} == VERBS_MEANT
    assert {word: suggest_word(word, STRATEGIES) for word in STRATEGIES_MEANT} == STRATEGIES_MEANT
    assert {option: suggest_option(*option, OPTIONS) for option in OPTIONS_MEANT} == OPTIONS_MEANT
    assert {name: suggest_option(name, "", OPTIONS) for name in MISSPELLED} == MISSPELLED
    for (name, verb), written in OF_A_VERB.items():  # only what the verb has
        known = [known for option in find_options(verb) for known in option.names]
        assert suggest_option(name, "5", known) == written, (name, verb)


def test_one_wrong_letter_is_found():
    """One letter is missing, wrong or too many, or two are swapped; another name may be as similar."""
    for word in (option.key for option in find_options("run") if len(option.key) >= 4):
        for at, letter in enumerate(word):
            before, after = word[:at], word[at + 1 :]
            typos = [before + middle + after for middle in ("", letter * 2, "x", "z")]
            typos += [before + after[0] + letter + after[1:]] if after else []
            assert not [typo for typo in typos if not suggest_option(f"--{typo}", "", OPTIONS)]


def test_every_row_names_an_option_and_no_option_of_ompbind_is_another_tools():
    known = {verb: {verb, *(name for row in find_options(verb) for name in row.names)} for verb in VERBS}
    known["config"] = set()  # it has options of all verbs
    for names, text, needed in OTHER_OPTIONS:
        having = [verb for verb in VERBS if (needed or text.split(" ")[0]) in known[verb] | {"--version"}]
        assert having, names
        own = {*names.split(), "--export"} - {"--export"}  # Slurm's
        assert "--version" in (needed, text) or not [verb for verb in having if own & known[verb]], names


def test_hints_and_the_page_say_the_same_about_options_of_other_tools():
    """A row of the page has a command line of a tool, maybe long names of its options, and what is here."""
    page, tried = (Path(__file__).parents[2] / "docs/coming-from.md").read_text(), 0
    for row in re.findall(r"^\| (`(?:numactl|mpirun|srun|torchrun|hyperfine|docker) .*)", page, re.M):
        left, right = (re.findall("`(.+?)`", cell) for cell in re.split(r"(?<!\\) \| ", row)[:2])
        verb = next((word for word in (right or ["run"])[0].split() if word in VERBS), "run")
        known = [name for option in find_options(verb) for name in option.names]
        words = [*left[0].partition(" ./app")[0].split(), *left[1:], ""]
        for word, following in pairwise(words if right else ()):
            name, _, value = word.partition("=")
            if name.startswith("--") and name not in (*known, "--mpibind") and f"{name}=" not in right[0]:
                meant, tried = find_option(name, value or following, known), tried + 1
                options = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", meant))
                assert options & set(right[0].split()) or meant.strip("'") in right[0], (name, meant, row)
    assert tried > 15
