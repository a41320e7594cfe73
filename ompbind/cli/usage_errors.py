"""The text of usage errors: the messages of click in the style of all other errors of ompbind."""

import click

from ompbind.errors import OptionError


def explain_usage_error(error: click.UsageError) -> OptionError:
    """Return a usage error with a message in lower case and a hint at the help."""
    command = error.ctx.command_path if error.ctx else "ompbind"
    hint = f"see '{command} --help'"
    if isinstance(error, click.NoSuchOption):
        is_reset = error.option_name.startswith("--no")
        names = [name for name in error.possibilities or () if is_reset or not name.startswith("--no-")]
        similar = " or ".join(sorted(names))
        hint = f"did you mean {similar}? {hint}" if similar else hint
        return OptionError(_restyle(error.message), hint=hint)
    return OptionError(_restyle(error.format_message()), hint=hint)


def _restyle(message: str) -> str:
    """Return a message of click without its capital letter and full stop."""
    text = message.strip().removeprefix("Got ").removesuffix(".")
    return text[:1].lower() + text[1:]
