"""Names of other tools and misspelled names have a suggestion that exists."""

import pytest

from ompbind.cli.suggestions import (
    OTHER_OPTIONS,
    suggest_option,
    suggest_value,
    suggest_verb,
    suggest_word,
)
from ompbind.cli.verb import find_options
from ompbind.cli.verbs import VERBS
from ompbind.openmp.binding import Bind
from ompbind.planning.request import MemoryMode
from ompbind.planning.strategies.table import STRATEGIES
from ompbind.text import suggest_name

OPTIONS = (
    "-n", "--ranks", "-c", "--cores", "-m", "--mask", "-s", "--strategy", "-t", "--threads", "--smt",
    "--share", "--memory", "--env", "--chdir", "--output", "-v", "--verbose", "--timeout", "--run-id",
    "--rendezvous", "--on-failure", "--devices",
)  # fmt: skip


@pytest.mark.parametrize(
    ("word", "verb"),
    [
        ("benchmark", "bench"),
        ("tune", "bench"),
        ("start", "run"),
        ("runn", "run"),
        ("mpirun", "run"),
        ("Plan", "plan"),
        ("lstopo", "topo"),
        ("list", "ps"),
        ("check", "doctor"),
        ("inspct", "inspect"),
        ("python", ""),
        ("", ""),
    ],
)
def test_verbs(word, verb):
    assert suggest_verb(word, VERBS) == verb


@pytest.mark.parametrize(
    ("word", "strategy"),
    [
        ("numa", "nodes"),
        ("node", "nodes"),
        ("socket", "packages"),
        ("sockets", "packages"),
        ("Package", "packages"),
        ("llc", "l3"),
        ("l3cache", "l3"),
        ("core", "cores"),
        ("scatter", "spread"),
        ("block", "compact"),
        ("balance", "balanced"),
        ("best", ""),
    ],
)
def test_strategies(word, strategy):
    assert suggest_word(word, STRATEGIES) == strategy


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("compact", ("close", "spread"), "close"),
        ("membind", ("local", "bind", "preferred"), "bind"),
        ("p-core", ("performance", "efficiency", "all"), "performance"),
        ("abort", ("stop", "continue"), "stop"),
        ("jsn", ("table", "json"), "json"),
        ("cuda", ("none", "auto", "gpu", "nic"), "gpu"),
        ("rdma", ("none", "auto", "gpu", "nic"), "nic"),
        ("gcc", ("auto", "gomp", "llvm"), "gomp"),
        ("socket", ("rank", "core"), ""),
    ],
)
def test_words_of_options(word, known, meant):
    assert suggest_word(word, known) == meant


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("-np", "4", "-n 4"),
        ("--np", "", "-n N"),
        ("--nproc-per-node", "auto", "-n auto"),
        ("--cpus-per-task", "8", "-c 8"),
        ("--tensor-parallel-size", "2", "-n 2, or the option of the server after --"),
        ("-tp", "2", "-n 2, or the option of the server after --"),
        ("--dp", "", "-n N, or the option of the server after --"),
        ("--cpus", "4", "-c 4 for 4 cores per rank, or -m 4 for CPU 4"),
        ("--cpus", "0-3", "-m 0-3"),
        ("--cpus", "", "-c C for C cores per rank, or -m MASK"),
        ("--physcpubind", "0-3,8", "-m 0-3,8"),
        ("--cpu-list", "0|1", "-m '0|1'"),
        ("--cpunodebind", "0,2-3", "-m node:0,node:2-3"),
        ("--cpunodebind", "", "-m node:0"),
        ("--cpu-bind", "none", "-m none"),
        ("--cpu-bind", "verbose,map_cpu:0,2", "-m '0|2'"),
        ("--cpu-bind", "mask_cpu:0x3,0xc", "-m '0x3|0xc'"),
        ("--cpu-bind", "ldoms", "-s nodes"),
        ("--bind-to", "socket", "-s packages"),
        ("--bind-to", "l3cache", "-s l3"),
        ("--map-by", "ppr:1:numa", "-s nodes"),
        ("--map-by", "numa:PE=4", "-s nodes"),
        ("--map-by", "slot", "-s balanced"),
        ("-map-by", "", "-s balanced"),
        ("--cpus", "1.5", "-c C for C cores per rank, or -m MASK"),
        ("-cpus", "4", "-c 4 for 4 cores per rank, or -m 4 for CPU 4"),
        ("-cpu-bind", "core", "-s cores"),
        ("--membind", "0", "--memory bind"),
        ("--mem-bind", "local", "--memory local"),
        ("--hint", "nomultithread", "--smt 1"),
        ("--threads-per-core", "2", "--smt 2"),
        ("--gpus-per-task", "2", "--devices gpu --devices-per-rank 2"),
        ("--gpu-bind", "closest", "--devices gpu"),
        ("-x", "A=b c", "--env 'A=b c'"),
        ("-genv", "NAME", "--env NAME=VALUE"),
        ("--wdir", "/tmp", "--chdir /tmp"),
        ("-l", "", "--output tag"),
        ("--time", "5", "--timeout 5"),
        ("--standalone", "", "--rendezvous"),
        ("--thread", "2", "--threads"),
        ("--run_id", "x", "--run-id"),
        ("--zzz", "", ""),
        ("--kill-on-bad-exit", "", "--on-failure stop"),
        ("--max-restarts", "3", "--on-failure restart:3"),
        ("--max_restarts", "", "--on-failure restart:N"),
        ("--restart", "on-failure:5", "--on-failure restart:5"),
        ("--restart", "always", "--on-failure restart"),
        ("--restart", "no", "--on-failure stop"),
    ],
)
def test_options(name, value, written):
    assert suggest_option(name, value, OPTIONS) == written


def test_an_option_that_the_verb_does_not_have_is_not_suggested():
    assert suggest_option("--time", "5", ["-n", "--ranks"]) == ""


@pytest.mark.parametrize("value", ["", "4", "a=b", "none", "nomultithread"])
def test_every_row_names_an_option_of_run(value):
    known = {name for option in find_options("run") for name in option.names}
    others = {"--hint": {""}, "--json": {"--format"}, "-V": {"--version"}}
    for row in OTHER_OPTIONS:
        written = row.read(value) if row.read else row.write.format(value=value)
        assert written.split(" ")[0] in known | others.get(row.names[0], set()), row.names


def test_no_option_of_ompbind_is_listed_as_an_option_of_another_tool():
    own = {name for verb in VERBS for option in find_options(verb) for name in option.names}
    assert own & {name for row in OTHER_OPTIONS for name in row.names} == {
        "--export"
    }  # bench has it, Slurm too


@pytest.mark.parametrize(
    ("option", "text", "known", "hint"),
    [
        ("-s", "node", STRATEGIES, "did you mean 'nodes'?"),
        ("-s", "spread, block", STRATEGIES, "did you mean 'compact'?"),
        ("--bind", "cor", tuple(Bind), "did you mean 'core'?"),
        ("--bind", "socket", tuple(Bind), "did you mean -s packages?"),
        ("--bind", "L3", tuple(Bind), "did you mean -s l3?"),
        ("--bind", "zzz", tuple(Bind), ""),
        ("--memory", "socket", tuple(MemoryMode), ""),
        ("-s", "zzz", STRATEGIES, ""),
        ("-s", "zzz", (), ""),
    ],
)
def test_values(option, text, known, hint):
    assert suggest_value(option, text, known) == hint


def test_names():
    assert suggest_name("OMPBIND_MASKS", ["OMPBIND_MASK", "OMPBIND_RANKS"]) == "OMPBIND_MASK"
    assert suggest_name("nothing", ["OMPBIND_MASK"]) == ""
