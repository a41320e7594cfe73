"""Errors about values that come from variables or files name these, and not the options."""

import re

from ompbind.cli.options.apply_rules import render_given
from ompbind.cli.options.option import CPUS, Option, Precedence
from ompbind.cli.options.values import Values
from ompbind.errors import MaskError, OmpbindError, PlanError


def name_sources(error: OmpbindError, values: Values) -> None:
    """Replace options in the message of an error by the variables or keys that their values come from.

    A mask that comes from a variable or a file is named before the message, which shows only its text. If no
    option is named, the hint lists the options that may be the cause. A second call changes nothing.
    """
    given = {option: source for option in values.options.values() if (source := _find_source(option, values))}
    for option, source in given.items():
        error.message = _replace(error.message, option, values.text(option.name), source)
    mask = next((source for option, source in given.items() if option.name == "mask"), "")
    if any(source in error.message for source in given.values()):
        return
    if isinstance(error, MaskError) and mask:
        error.message = f"{mask}: {error.message}"
        return
    causes = [option for option in given if _may_be_cause(option, error, values)]
    listed = (
        f"set outside of the command line: {', '.join(render_given(values, option) for option in causes)}"
    )
    if causes and listed not in error.hint:
        error.hint = "; ".join(filter(None, (error.hint, listed)))


def _may_be_cause(option: Option, error: OmpbindError, values: Values) -> bool:
    """Return whether an option can cause an error: it chooses CPUs, or the message has its value."""
    text = values.text(option.name)
    shown = text if len(text) > _SHORT else f"'{text}'"
    is_planned = option.section == CPUS and isinstance(error, PlanError)
    return is_planned or (bool(text) and shown in error.message)


_SHORT = 2  # characters of a value that a message may have by chance


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
