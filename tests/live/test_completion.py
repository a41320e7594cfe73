"""Shells complete the command lines of ompbind, and of the commands in them."""

import os

import pytest

from ompbind.cli.completion import SCRIPTS
from ompbind.cli.options import find_options
from tests.live.shells import START, Shell


@pytest.fixture(scope="module", params=START)
def shell(request, tmp_path_factory):
    """A shell in a directory with a directory and a file."""
    if not Shell.is_installed(request.param):
        assert not os.environ.get("OMPTEST_ALL"), f"CI must install {request.param}"
        pytest.skip(f"{request.param} is not installed")
    directory = tmp_path_factory.mktemp("shell")
    (directory / "basket").mkdir()
    (directory / "basic.txt").touch()
    new = Shell(request.param, directory)
    yield new
    new.close()


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("insp", "inspect"),
        ("run --log-d", "run --log-dir"),
        ("run --strategy ba", "run --strategy balanced"),
        ("run --strategy=ba", "run --strategy=balanced"),
        ("run --env A=b -m node:0 --log-d", "run --env A=b -m node:0 --log-dir"),
        ('run -m "0|1" --log-d', 'run -m "0|1" --log-dir'),
        ("run --log-dir bas", "run --log-dir basket"),
        ("run --log-dir=bas", "run --log-dir=basket"),
        ("plan --topology basi", "plan --topology basic.txt"),
        ("plan --topology=basi", "plan --topology=basic.txt"),
        ("plan --topology sample:two", "plan --topology sample:two-sockets"),
        ("plan --topology=sample:two", "plan --topology=sample:two-sockets"),
        ("plan --topology samp", "plan --topology sample:"),
        ("run -n 2 -- ompbin", "run -n 2 -- ompbind"),
        ("run -n 2 ompbin", "run -n 2 ompbind"),
        ("run -- cat basi", "run -- cat basic.txt"),
        ("run cat basi", "run cat basic.txt"),
        ("doctor -- cat basi", "doctor -- cat basic.txt"),
        ("completion zs", "completion zsh"),
        ("bench --vary strat", "bench --vary strategy="),
    ],
)
def test_a_line_is_completed(shell, line, completed):
    assert shell.complete(f"ompbind {line}").rstrip(" /") == f"ompbind {completed}"


@pytest.mark.parametrize("values", ["ex", "core,ex"])
def test_values_of_vary_are_completed_where_an_equals_sign_separates_no_words(shell, values):
    completed = values if shell.name.startswith("bash") else values.replace("ex", "exact")
    line = "ompbind bench --vary bind="
    assert shell.complete(f"{line}{values}").rstrip() == f"{line}{completed}"


def test_the_command_after_two_dashes_has_its_own_completion(shell):
    completed = "ompbind run -- ompbind run --log-d" + ("" if shell.name == "bash" else "ir")
    assert shell.complete("ompbind run -- ompbind run --log-d").rstrip() == completed


@pytest.mark.parametrize("verb", ["run", "plan", "bench", "topo"])
def test_options_have_their_help_with_words_and_names_filled_in(ompbind, verb):
    env = {"_OMPBIND_COMPLETE": "zsh_complete", "COMP_WORDS": f"ompbind {verb} --", "COMP_CWORD": "2"}
    lines = dict(line.split("\t") for line in ompbind(env=env).stdout.splitlines())
    for option in find_options(verb):
        assert lines[f"plain,{option.long_name}"] == " ".join(option.render_help().split())
    assert "{words}" not in "".join(lines.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no shell is given hint: write one of bash, zsh, fish"),
        (["csh"], "'csh' is no shell that ompbind knows hint: write one of bash, zsh, fish"),
        (["bash", "zsh"], "'bash zsh' is no shell"),
    ],
)
def test_other_shells_are_errors(ompbind, words, message):
    done = ompbind("completion", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert " ".join(done.stderr.split()).startswith(f"ompbind: error: {message}")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_is_printed(ompbind, name):
    done = ompbind("completion", name)
    assert (done.returncode, done.stdout, done.stderr) == (0, SCRIPTS[name], "")
