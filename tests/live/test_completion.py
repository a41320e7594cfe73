"""Shells complete the command lines of ompbind, and of the commands in them."""

import os
import re
import shlex

import pytest

from ompbind.cli.completion import SHELLS, make_script
from tests.cli.command_lines import call
from tests.live.conftest import OMPBIND, Terminal, open_terminals, required, skip_without, write_program
from tests.tables import rows

NAME = 'my user\'s "ü" $HOME `y`'

PACKAGE = "/usr/share/bash-completion/bash_completion"
"""The completions of other commands, which users of bash may have installed."""

BASH = ["bash", "--noprofile", "--norc", "-i"]
START = {
    "bash": (BASH, ""), "bash-completion": (BASH, f". {PACKAGE}\n"), "zsh": (["zsh", "-f", "-i"], ""),
    "fish": (["fish", "--no-config", "-i"], ""),
}  # fmt: skip
"""Each shell: its command line without the user's configuration, and what it executes first."""


class Shell(Terminal):
    """A shell in a terminal, in a directory of its own, with the completion of ompbind."""

    def __init__(self, name, directory):
        self.directory = directory
        argv, first = START[name]
        (directory / "script").write_text(first + make_script(argv[0]))
        write_program(directory / "show", "printf '%s\\n' \"$@\" >found; mv found answer; echo completed")
        own = {"HOME": str(directory), "XDG_RUNTIME_DIR": str(directory), "USER": "user"}  # fish needs them
        env = [f"{key}={value}" for key, value in {"COLUMNS": "200", "LC_ALL": "C.UTF-8", **own}.items()]
        super().__init__("env", f"--chdir={directory}", *env, *argv)
        self.type("source ./script; echo scr''ipt read\r")
        self.read_until(b"script read")

    def complete(self, line):
        """Return the words of a command line after the Tab key, as the shell reads them."""
        before, after = "\x01", "\x05"  # the keys that go to the start and to the end of the line
        self.type(f"{line}\t{before}./show {after}\r")
        self.read_until(b"completed")
        return (self.directory / "answer").read_text().splitlines()


@pytest.fixture(scope="module", params=START)
def shell(request, tmp_path_factory):
    """A shell in a directory with directories and a file."""
    required(START[request.param][0][0])
    if request.param == "bash-completion" and not os.path.exists(PACKAGE):
        skip_without(request.param)
    directory = tmp_path_factory.mktemp("shell") / NAME
    (directory / "basket").mkdir(parents=True)
    (directory / NAME).mkdir()
    (directory / NAME / "ompbind").symlink_to(OMPBIND)
    (directory / "basic.txt").touch()
    for opened in open_terminals(Shell):
        yield opened(request.param, directory)


LINES = rows("""
    insp                                 | inspect
    run --strategy=ba                    | run --strategy=balanced
    run --env A=b -m node:0 --log-d      | run --env A=b -m node:0 --log-dir
    run -m "0|1" --log-d                 | run -m "0|1" --log-dir
    run --log-dir=bas                    | run --log-dir=basket
    plan --topology basi                 | plan --topology basic.txt
    run --output tag,fi                  | run --output tag,files
    run --expect tcmalloc,io             | run --expect tcmalloc,iomp
    plan --topology=sample:two           | plan --topology=sample:two-sockets
    run -n 2 -- readlin                  | run -n 2 -- readlink
    run cat basi                         | run cat basic.txt
    bench --vary strat                   | bench --vary strategy=
    help tuto                            | help tutorial
    help --max-r                         | help --max-rounds
    run --chdir '$x `y` "é"' --log-d     | run --chdir '$x `y` "é"' --log-dir
    """)


def complete_words(shell, line):
    *words, last = shell.complete(line)
    return [*words, last.rstrip("/")]


def test_lines_are_completed(shell):
    found = {line: complete_words(shell, f"ompbind {line}") for line, _ in LINES}
    assert found == {line: ["ompbind", *shlex.split(completed)] for line, completed in LINES}


def test_options_stay_where_bash_does_not_split_words_at_equals_signs(tmp_path):
    required("bash")
    for opened in open_terminals(Shell):
        shell = opened("bash", tmp_path)
        shell.type("COMP_WORDBREAKS=${COMP_WORDBREAKS//[=:]}\r")  # as npm's completion does
        for option, rest in (("--strategy=ba", "lanced"), ("--topology=sample:z", "15-partition")):
            assert complete_words(shell, f"ompbind plan {option}") == ["ompbind", "plan", option + rest]


def test_paths_with_special_characters_are_completed(shell):
    quoted = re.sub(r"([^\w/])", r"\\\1", f"{NAME}/ompbind")
    for start, read in (("./", "./"), ("~/", f"{shell.directory}/")):
        assert complete_words(shell, f"{start}{quoted} insp") == [f"{read}{NAME}/ompbind", "inspect"]
    for option in ("--log-dir my", "--log-dir=my", "--report my"):
        *_, last = complete_words(shell, f"ompbind run {option}")
        assert last.removeprefix("--log-dir=") == NAME, option


def test_the_script_of_a_known_shell_is_printed():
    for name in SHELLS:
        assert call("completion", name).stdout == f"{make_script(name)}\n"
    for words in ([], ["csh"], ["bash", "zsh"]):
        done = call("completion", *words)
        assert (done.returncode, "write one of bash, zsh, fish" in done.stderr) == (2, True)
