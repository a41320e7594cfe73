"""The short help of verbs with many options fits on a screen; --help-all shows every option; pages."""

import os
import re
import sys

import pytest

from ompbind.cli import VERBS
from ompbind.cli.help import read_pages
from ompbind.cli.main import load_verb
from ompbind.cli.options import find_options
from ompbind.cli.verb import SHORT_EXAMPLES
from tests.cli.command_lines import call
from tests.live.conftest import OMPBIND, one_line, required, wait_until
from tests.tables import rows

SHORT = ("run", "plan", "exec", "bench", "rebind", "config")
"""The verbs with a short help."""


def read_help(*words, columns=80):
    """Return what the command line prints on a terminal of some width."""
    done = call(*words, COLUMNS=str(columns))
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines_of(option, text):
    """The lines of a help text that begin with the names of an option; `[=VALUE]` follows without a space."""
    value = option.value_name if option.value_name.startswith("[=") else ""
    start = f"  {', '.join(option.names)}{value} "
    return [line for line in text.splitlines() if f"{line} ".startswith(start)]


@pytest.mark.parametrize("verb", SHORT)
def test_short_help_has_the_everyday_options_and_fits_on_a_screen(verb):
    text = read_help(verb, "--help")
    lines = text.splitlines()
    everyday = [option for option in find_options(verb) if option.is_everyday(verb)]
    assert (len(lines) <= (39 if verb == "run" else 42), len(everyday) <= 24) == (True, True)
    assert lines[-1].startswith(f"All options: 'ompbind {verb} --help-all'. More: ompbind help ")
    names = set()
    for option in find_options(verb):
        assert len(lines_of(option, text)) == option.is_everyday(verb), option.name
        names |= {*option.names} if option.is_everyday(verb) else set()
    shown = [line for _, line in load_verb(verb).examples if line in text]
    assert len(shown) == SHORT_EXAMPLES
    own = " ".join(line.partition(f"ompbind {verb}")[2].partition(" -- ")[0] for line in shown)
    assert {word for word in own.split() if word.startswith("-")} <= names, "examples have shown options"


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("verb", VERBS)
def test_complete_help_has_every_option_with_its_whole_text(verb, columns):
    text = read_help(verb, "--help-all" if verb in SHORT else "--help", columns=columns)
    shown = "".join(text.split())
    for option in find_options(verb):
        assert len(lines_of(option, text)) == 1, option.name
        assert "".join(option.render_help().split()) in shown, option.name
    assert all(line in text for _, line in load_verb(verb).examples)
    assert max(len(line) for line in text.splitlines() if "ompbind" not in line) <= columns
    assert ("--help-all" in text) == (verb in SHORT)
    assert text.rpartition("More: ompbind help ")[2].strip() in read_pages()


def test_without_docstrings_the_summary_is_the_help(ompbind):
    done = ompbind("-OO", "-m", "ompbind", "ps", "--help", program=sys.executable)
    assert load_verb("ps").short_help in done.stdout


def test_help_needs_no_command_starts_nothing_and_is_completed(ompbind):
    done = ompbind("run", "-n", "2", "--help-all", "--", "nonsense")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--keep-descendants" in done.stdout
    env = {"_OMPBIND_COMPLETE": "bash_complete", "COMP_WORDS": "ompbind run --help", "COMP_CWORD": "2"}
    assert "plain,--help-all" in ompbind(env=env).stdout.split()
    assert max(map(len, ompbind("--help", env={"COLUMNS": "200"}).stdout.splitlines())) <= 80


TOPICS = rows(r"""
    run                    | 0 | ^Usage: ompbind run .*--ranks
    tutorial               | 0 | ^# Tutorial\n.*\(`ompbind help [\w-]+`\)
    docs/first-aid.md      | 0 | ^# [A-Z].*doctor
    Mpi Slurm              | 0 | ^# .*srun
    --mask                 | 0 | ^-m, --mask MASK\n  meaning: .*: OMPBIND_MASK\n.*more: ompbind help placement
    run -c                 | 0 | ^-c, --cores C\n.* commands: run, exec, plan, bench, rebind\n
    --format=json          | 0 | ^--format NAME\n.*^--format tree\|table
    search COMP_WORDS cpu  | 2 | no page contains 'comp_words' and 'cpu'
    search numactl CPU     | 0 | ^coming-from: \w.*^  .*numactl
    formats                | 0 | ^\| `vllm` \| .*VLLM_CPU_OMP_THREADS_BIND='0-3\|4-7'
    search k8s             | 0 | ^containers: Kubernetes\n
    search                 | 2 | no word to search for hint: 'ompbind help pages' lists
    slurm                  | 2 | no command or page is named 'slurm' hint: .* mean 'ompbind help mpi-slurm'
    strategy               | 2 | did you mean 'ompbind help --strategy'
    --mesk                 | 2 | no option is named '--mesk' hint: did you mean --mask
    --cpu-list             | 2 | did you mean -m MASK
    """)


@pytest.mark.parametrize(("words", "code", "pattern"), TOPICS)
def test_help_shows_verbs_pages_and_options_as_plain_text_or_says_what_is_meant(words, code, pattern):
    done = call("help", *words.split(" "))
    assert done.returncode == int(code)
    text = done.stdout if code == "0" else one_line(done.stderr)
    assert re.search(pattern, text, re.M | re.S), text[:2000]
    assert not re.search(r"\x1b|<!--", text)


def test_no_page_has_a_link_that_only_a_browser_can_follow():
    assert not [name for name, text in read_pages().items() if re.search(r"\]\((?!https?:)", text)]


def test_a_page_on_a_terminal_is_formatted_and_its_pager_gets_interrupts(terminal):
    less = required("less")
    shown = terminal("env", f"PAGER={less}", OMPBIND, "help", "tutorial", term="xterm")
    shown.read_until(b"\x1b[4;35mSet up")
    show = 'stty cols 60; PAGER=cat "$0" help workers'
    narrow = terminal("sh", "-c", show, OMPBIND, term="xterm")
    narrow.read_until(b"--processes-per-r  gunicorn")  # long options are broken, not cut
    shown.type("\x03")

    def end():
        shown.type("q")
        pid, status = os.waitpid(shown.pid, os.WNOHANG)
        return pid and [status]

    assert wait_until(end, "end") == [0]
    long = ("help", "search", "a")  # more than fits into a pipe
    assert terminal("env", "PAGER=true", OMPBIND, *long, term="xterm").wait() == 0
