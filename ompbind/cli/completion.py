"""`ompbind completion`: print the script with which a shell completes command lines of ompbind."""

import click

from ompbind.cli.completion_scripts import SCRIPTS
from ompbind.cli.console import write_stdout
from ompbind.cli.verb import Verb
from ompbind.errors import OptionError

SHELLS = tuple(SCRIPTS)

EXAMPLES = (
    ("In ~/.bashrc", 'eval "$(ompbind completion bash)"'),
    ("In ~/.zshrc", 'eval "$(ompbind completion zsh)"'),
    ("In ~/.config/fish/config.fish", "ompbind completion fish | source"),
)

HELP = """Print the script with which bash, zsh or fish completes command lines of ompbind.

The shell then completes verbs, options and their values, the names of live runs, and the command after --.
"""


def completion(ctx: click.Context) -> int:
    """Print the script of the shell that is given."""
    name = " ".join(ctx.params["words"])
    if name not in SCRIPTS:
        problem = f"{name!r} is no shell that ompbind knows" if name else "no shell is given"
        raise OptionError(problem, hint=f"write one of {', '.join(SHELLS)}")
    write_stdout(SCRIPTS[name].removesuffix("\n"))
    return 0


VERB = Verb(
    "completion",
    completion,
    help=HELP,
    summary="Print the script with which a shell completes command lines.",
    examples=EXAMPLES,
    words="shell",
    complete_word=lambda _: tuple(SHELLS),
)
