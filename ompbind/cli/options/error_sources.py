"""Errors about values that come from variables or files name these, and not the options."""

import re

from ompbind.cli.options.option import Option, Precedence
from ompbind.cli.options.rules import render_given
from ompbind.cli.options.values import Values
from ompbind.errors import MaskError, OmpbindError, PlanError


def name_sources(error: OmpbindError, values: Values) -> None:
    """Replace options in the message of an error by the variables or keys that their values come from.

    A mask that comes from a variable or a file is named before the message, which shows only its text. The
    hint of other errors of plans lists such options, because each of them may be the cause.
    """
    sources = {
        option: source for option in values.options.values() if (source := _find_source(option, values))
    }
    before = error.message
    for option, source in sources.items():
        error.message = _replace(error.message, option, values.text(option.name), source)
    mask = next((source for option, source in sources.items() if option.name == "mask"), "")
    if isinstance(error, MaskError) and mask and not error.message.startswith(mask):
        error.message = f"{mask}: {error.message}"
    elif isinstance(error, PlanError) and sources and error.message == before:
        listed = ", ".join(render_given(values, option) for option in sources)
        error.hint = "; ".join(filter(None, (error.hint, f"set outside of the command line: {listed}")))


def _find_source(option: Option, values: Values) -> str:
    """Return the variable or key that the value comes from; "" for other and for several sources."""
    names = {source.name for source in values.sources(option.name)}
    level = values.source(option.name).level
    return names.pop() if Precedence.DEFAULT < level < Precedence.COMMAND_LINE and len(names) == 1 else ""


def _replace(message: str, option: Option, value: str, source: str) -> str:
    """Replace all names of an option, and the space before its value."""
    names = "|".join(map(re.escape, ("/".join(option.names), *option.names)))
    pattern = rf"(?<![\w-])(?:{names})(?![\w-])(?: ({re.escape(value)})(?![\w-]))?"
    return re.sub(pattern, lambda found: f"{source}={found[1]}" if found[1] else source, message)
