"""Names of other tools and misspelled names have a suggestion that exists."""

import shlex

import pytest

from ompbind.cli import LAUNCHING, VERBS
from ompbind.cli.options import find_options
from ompbind.cli.suggestions import OTHER_OPTIONS, REMOVED_OPTIONS, suggest_option, suggest_verb, suggest_word
from ompbind.planning.strategies import STRATEGIES
from tests.cli.command_lines import call
from tests.live.conftest import one_line
from tests.tables import rows

OPTIONS = [name for option in find_options("run") for name in option.names]


VERBS_MEANT = {
    "benchmark": "bench", "runn": "run", "mpirun": "run", "Plan": "plan", "lstopo": "topo",
    "inspct": "inspect", "rnu": "run", "kill": "stop", "rm": "", "wait": "", "push": "", "python": "", "": "",
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
    ("-x", ""): "--env NAME=VALUE", ("--gpus-per-task", "2"): "--devices gpu --devices-per-rank 2",
    ("--time", "00:01:00"): "--timeout TIME, as 90, 5m or 1h30m", ("-l", ""): "--output tag",
}  # fmt: skip
"""The name and the value of an option of another tool → what to write."""

OF_A_VERB = {
    ("--json", "exec"): "'ompbind plan --format json'", ("--json", "ps"): "--format json",
    ("--json", "bench"): "--export json", ("--runs", "bench"): "--max-rounds 5", ("--runs", "exec"): "",
    ("--detach", "run"): "'ompbind run ... &', which the shell runs in the background", ("-d", "plan"): "",
    ("--export-json", "bench"): "--export json=5", ("--pid", "inspect"): "'ompbind inspect 5'",
    ("--port", "plan"): "", ("--silent", "plan"): "",
}  # fmt: skip
"""The name of an option with the value 5, and a verb → what to write."""

MISSPELLED = {
    "--thread": "--threads", "--run_id": "--run-id", "-ranks": "--ranks", "--evn": "--env",
    "--mask-": "--mask", "--sttrategy": "--strategy", "--strat": "--strategy", "--keep-e": "--keep-env",
    "--keep-desecndant": "--keep-descendants", "--keep": "", "--rm": "", "--file": "", "--kill": "",
    "--end": "", "--all": "", "--kind": "", "--plain": "", "--host": "", "-z": "", "-it": "", "--": "",
}  # fmt: skip


def test_verbs_and_strategies():
    assert {word: suggest_verb(word, VERBS) for word in VERBS_MEANT} == VERBS_MEANT
    assert {word: suggest_word(word, STRATEGIES) for word in STRATEGIES_MEANT} == STRATEGIES_MEANT


def test_options():
    assert {option: suggest_option(*option, OPTIONS) for option in OPTIONS_MEANT} == OPTIONS_MEANT
    assert {name: suggest_option(name, "", OPTIONS) for name in MISSPELLED} == MISSPELLED


def test_an_option_that_the_verb_does_not_have_is_not_suggested():
    for (name, verb), written in OF_A_VERB.items():
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
    known = {name for verb in VERBS for option in find_options(verb) for name in option.names}
    others = {name for names, _, _ in OTHER_OPTIONS for name in names.split()}
    assert known & others == {"--export"}  # Slurm's
    for names, text, needed in OTHER_OPTIONS:
        assert (needed or text.split(" ")[0]) in known | {"--version"}, names


@pytest.mark.parametrize("name", REMOVED_OPTIONS)
def test_an_option_that_was_removed_has_a_hint(name, tmp_path):
    """On the command line of any verb, as a variable and as a key of a file."""
    hint = " ".join(REMOVED_OPTIONS[name].split())
    key = name.removeprefix("--")
    for verb in VERBS:
        assert not [option for option in find_options(verb) if name in (*option.names, option.reset_name)]
        done = call(verb, name, "--", "true")
        assert done.returncode == (125 if verb in LAUNCHING else 2)
        assert one_line(done.stderr).endswith(f"the option {name} was removed hint: {hint}")
    assert f"the option --no-{key} was removed" in one_line(call("plan", f"--no-{key}").stderr)
    variable = f"OMPBIND_{key.upper().replace('-', '_')}"
    warned = one_line(call("plan", **{variable: "1"}).stderr)
    assert f"warning: {variable} is not a variable of ompbind; its option was removed: {hint}" in warned
    (tmp_path / "x.toml").write_text(f"[defaults]\n{key} = 1\n")
    refused = one_line(call("plan", "--config", str(tmp_path / "x.toml")).stderr)
    assert refused.endswith(f"defaults.{key} was removed hint: {hint}")


@pytest.mark.parametrize(("line", "hint"), rows("""
    run --runs 3 -- x          | did you mean 'ompbind bench', which repeats and compares runs?
    run -genv A=1 x            | did you mean --env A=1?
    run -n=2 -- x              | write -n 2
    kill                       | did you mean 'stop'?
    topo --help-all            | see 'ompbind topo --help'
    version                    | did you mean '--version'?
    sh -c true                 | to start a command, write 'ompbind run -- sh'
    run -- 'echo $RANK; date'  | a command with shell syntax needs a shell: -- sh -c 'echo $RANK; date'
"""))  # fmt: skip
def test_errors_have_the_hint(line, hint):
    done = call(*shlex.split(line))
    assert one_line(done.stderr).endswith(f"hint: {hint}")
    assert done.returncode == (127 if "$" in line else 125 if line.startswith("run ") else 2)
