"""The text of usage errors: the messages of click in the style of all other errors of ompbind."""

import click
from click.core import ParameterSource

from ompbind.errors import OmpbindError


def explain_usage_error(error: click.UsageError) -> OmpbindError:
    """Return a usage error with a message in lower case and a hint at the help."""
    command = error.ctx.command_path if error.ctx else "ompbind"
    hint = f"see '{command} --help'"
    if isinstance(error, click.MissingParameter):
        return OmpbindError("the command to start is missing", hint=f"write it after --; {hint}")
    if isinstance(error, click.BadParameter) and error.param:
        return OmpbindError(f"{_name_origin(error)}: {_restyle(error.message)}", hint=hint)
    if isinstance(error, click.NoSuchOption):
        similar = " or ".join(sorted(error.possibilities or ()))
        hint = f"did you mean {similar}? {hint}" if similar else hint
        return OmpbindError(_restyle(error.message), hint=hint)
    return OmpbindError(_restyle(error.format_message()), hint=hint)


def _name_origin(error: click.BadParameter) -> str:
    """Return where a wrong value comes from: the names of the option, or its environment variable."""
    param, ctx = error.param, error.ctx
    if param is None or ctx is None:
        return "value"
    if param.name and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
        return str(param.envvar)
    return "/".join(param.opts) if isinstance(param, click.Option) else param.human_readable_name


def _restyle(message: str) -> str:
    """Return a message of click without its capital letter and full stop."""
    value, is_bool, _ = message.partition(" is not a valid boolean")
    if is_bool:
        return f"{value} is not 1 (yes) or 0 (no)"
    text = message.strip().removeprefix("Got ").removesuffix(".")
    return text[:1].lower() + text[1:]
