"""The text of usage errors: the messages of click in the style of all other errors of ompbind."""

import os
import shlex
from collections.abc import Sequence

import click

from ompbind.cli import VERBS, suggestions
from ompbind.cli.option import Option, VerbContext
from ompbind.cli.options import find_options
from ompbind.cli.register import check_hint
from ompbind.errors import OptionError
from ompbind.launchers.launchers import may_have_launcher
from ompbind.programs.find_command import find_file


def explain_usage_error(error: click.UsageError, args: Sequence[str] = ()) -> OptionError:
    """Return a usage error with a message in lower case and a hint: what is meant, or where the help is.

    `args` are the words of the command line.
    """
    verb = [word for word in args[:1] if word in VERBS]  # click sets no context if a value is missing
    command = error.ctx.command_path if error.ctx else " ".join(["ompbind", *verb])
    see_help = f"see '{command} --help'"
    if isinstance(error, click.NoSuchOption):
        name, value = suggestions.find_typed(error.option_name, args)
        hint = _suggest_option(error.ctx, name, value, args)
        explained = OptionError(f"no such option {name!r}", hint=hint)
        if isinstance(error.ctx, VerbContext):
            check_hint(explained, error.ctx)
        explained.hint = explained.hint or see_help
        return explained
    message = error.format_message().strip().removeprefix("Got ").removesuffix(".")  # click writes sentences
    message = message[:1].lower() + message[1:]
    hint, word = see_help, "".join(args[:1])
    if message.startswith("no such command"):
        if meant := suggestions.suggest_verb(word, [*VERBS, "--version"]):
            hint = f"did you mean {meant!r}?"
        elif word not in suggestions.NO_VERBS and find_file(word, os.environ):
            start = "exec" if may_have_launcher(os.environ) else "run"
            hint = f"to start a command, write 'ompbind {start} -- {word}'"
    source = message.partition("unexpected extra argument (")[2].removesuffix(")")
    if error.ctx and error.ctx.info_name == "topo" and (os.path.exists(source) or ":" in source):
        hint = f"did you mean --topology {shlex.quote(source)}?"
    return OptionError(message, hint=hint)


def _suggest_option(ctx: click.Context | None, name: str, value: str, args: Sequence[str]) -> str:
    """Return a hint for an unknown option: what is meant, or which verbs have the option; "" for neither."""
    rows = ((verb, option) for verb in VERBS for option in find_options(verb))
    verbs = [*dict.fromkeys(verb for verb, row in rows if name in row.names and verb in row.verbs)]
    if (ctx is None or ctx.parent is None) and verbs:
        typed = next((verb for verb in verbs if verb in args), verbs[0])
        return f"write options after the verb: 'ompbind {typed} {name}'"
    params = ctx.command.params if ctx and ctx.parent else []
    known = ["--help", "--version", *(known for param in params for known in param.opts)]
    known += args[:1] if params else []  # the verb
    if name.startswith("--no"):
        known += [param.reset_name for param in params if isinstance(param, Option)]
    meant = suggestions.suggest_option(name, value, known)
    if meant == "--version" and params:
        return "write --version before the verb: 'ompbind --version'"
    if verbs and not meant.startswith(name) and not suggestions.find_option(name, value, known):
        return f"{name} is an option of {', '.join(verbs)}"
    return suggestions.make_hint(meant) if meant else ""
