"""Apply the rules of options: what follows if an option has no effect because of another option.

If both options are of one level, this is an error, or a warning if the plan is still what was requested. If
not, the option of the lower level gives way, which -v shows.
"""

from __future__ import annotations

from ompbind.cli.options.objection import Objection
from ompbind.cli.options.option import Option, Precedence
from ompbind.cli.options.rules import find_objection, matters
from ompbind.cli.options.values import Values
from ompbind.errors import RequestError
from ompbind.record import Record

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Sequence

_VALUE_LIMIT = 40  # the longest value that messages show, in characters


class Messages(Record):
    """What the rules have found: warnings, and texts about the options that gave way."""

    warnings: tuple[str, ...]
    replaced: tuple[str, ...]


def apply_rules(values: Values) -> Messages:
    """Apply the rules of options; options that give way are reset to their defaults.

    Raises RequestError for an option that has no effect because of another option of its level.
    """
    warnings: dict[str, list[str]] = {}
    replaced: list[str] = []
    for option in sorted(values.options.values(), key=lambda option: -values.source(option.name).level):
        while objection := find_objection(values, option):
            other = values.options[objection.other]
            loser = _find_loser(values, option, other, objection)
            if loser is None:
                text = objection.text.format(other=_render_other(values, other))
                warnings.setdefault(text, []).append(render_given(values, option))
                break
            replaced.append(_give_way(values, loser, option if loser is other else other))
    joined = (_make_sentence(names, text) for text, names in warnings.items())
    return Messages(warnings=tuple(joined), replaced=tuple(replaced))


def _find_loser(values: Values, option: Option, other: Option, objection: Objection) -> Option | None:
    """Return which of two options gives way, None if that is a warning; raises RequestError for an error.

    Only the command line is for one run alone, so other levels also give way to a default. An option that
    keeps the plan as it is replaces no other option.
    """
    level, other_level = values.source(option.name).level, values.source(other.name).level
    is_lower = level < other_level or (level > other_level and not matters(values, other))
    if is_lower and level < Precedence.COMMAND_LINE:
        return option
    if objection.warning:
        return None
    if level > other_level and matters(values, other):
        return other
    text = objection.text.format(other=_render_other(values, other))
    raise RequestError(f"{render_given(values, option)} {text}", hint=objection.hint)


def _give_way(values: Values, option: Option, other: Option) -> str:
    """Reset an option to its default, and return the message about it."""
    text = f"{render_given(values, option)} is not used with {_render_other(values, other)}"
    values.reset(option.name)
    return text


def render_given(values: Values, option: Option) -> str:
    """Return an option as it could be written: its name, and its value if that is a short text.

    If it comes from a variable or a file, the name of the variable or key.
    """
    import shlex  # late: most command lines have no message

    source, text = values.source(option.name), values.text(option.name)
    shown = 0 < len(text) <= _VALUE_LIMIT
    name, separator = option.long_name, "=" if option.bare is not None else " "
    if Precedence.DEFAULT < source.level < Precedence.COMMAND_LINE:
        name, separator = source.name, "="
    return f"{name}{separator}{shlex.quote(text)}" if shown else name


def _render_other(values: Values, option: Option) -> str:
    """Return the option that prevents another: as it could be written, and whether that is its default."""
    is_default = not values.is_given(option.name) and option.default is not None
    return f"the default {render_given(values, option)}" if is_default else render_given(values, option)


def _make_sentence(names: Sequence[str], text: str) -> str:
    """Return the warning about some options, "A has no effect" or "A, B and C have no effect"."""
    subject = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"{subject} {text if len(names) == 1 else text.replace('has', 'have', 1)}"
