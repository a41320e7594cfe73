"""Rules about options that have no effect together: an error, a warning, or the lower level gives way.

The *level* of a value is where it comes from: the command line, a variable, or the default. The rule of an
option is a predicate on the values of all options. It objects if the option has no effect, and names the
other option that prevents it. Of two options of one level, this is an error, or a warning if the plan is
still what was requested. Of two levels, the lower one gives way, which -v shows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import click
from click.core import ParameterSource

from ompbind.errors import RequestError
from ompbind.record import Record

Options: TypeAlias = Mapping[str, Any]
"""The values of all options of a verb, by parameter name."""

CONTRADICT = "and {other} contradict each other"
"""The text of an objection if neither option is more important than the other."""


class Objection(Record):
    """Why an option has no effect.

    `other` is the parameter name of the option that prevents it. `text` continues a sentence that begins with
    the option; {other} is that other option. With `warning`, the plan is still what was requested.
    """

    other: str
    text: str = "has no effect with {other}"
    hint: str = "use only one of them"
    warning: bool = False


Rule: TypeAlias = Callable[[Options], Objection | None]

_LEVELS = {ParameterSource.ENVIRONMENT: 1, ParameterSource.COMMANDLINE: 2}
"""The levels of values; 0 is the default."""

_VALUE_LIMIT = 40  # the longest value that messages show, in characters


class Messages(Record):
    """What the rules have found: warnings, and texts about the options that gave way."""

    warnings: tuple[str, ...]
    replaced: tuple[str, ...]


def apply_rules(ctx: click.Context, rules: Iterable[tuple[click.Parameter, Rule]]) -> Messages:
    """Apply the rules of options; options that give way are reset to their defaults.

    Raises RequestError for an option that has no effect because of another option of its level.
    """
    warnings: dict[str, list[str]] = {}
    replaced: list[str] = []
    for param, rule in sorted(rules, key=lambda pair: -_level(ctx, pair[0])):
        while _is_given(ctx, param) and (objection := rule(ctx.params)):
            other = next(found for found in ctx.command.params if found.name == objection.other)
            loser = _find_loser(ctx, param, other, objection)
            if loser is None:
                text = objection.text.format(other=_render_other(ctx, other))
                warnings.setdefault(text, []).append(_render(ctx, param))
                break
            replaced.append(_give_way(ctx, loser, param if loser is other else other))
    joined = (_make_sentence(names, text) for text, names in warnings.items())
    return Messages(warnings=tuple(joined), replaced=tuple(replaced))


def _find_loser(
    ctx: click.Context, param: click.Parameter, other: click.Parameter, objection: Objection
) -> click.Parameter | None:
    """Return which of two options gives way, None if that is a warning; raises RequestError for an error.

    A variable is set for many runs, so it also gives way to a default. An option that keeps the plan as it is
    replaces no other option.
    """
    level, other_level = _level(ctx, param), _level(ctx, other)
    if level == 1 and other_level != 1:
        return param
    if objection.warning:
        return None
    if level > other_level and _is_given(ctx, other):
        return other
    text = objection.text.format(other=_render_other(ctx, other))
    raise RequestError(f"{_render(ctx, param)} {text}", hint=objection.hint)


def _level(ctx: click.Context, param: click.Parameter) -> int:
    source = ctx.get_parameter_source(param.name or "")
    return _LEVELS.get(source, 0) if source else 0


def _is_given(ctx: click.Context, param: click.Parameter) -> bool:
    """Return whether an option has another value than its default."""
    return _level(ctx, param) > 0 and ctx.params.get(param.name or "") != _default(ctx, param)


def _default(ctx: click.Context, param: click.Parameter) -> Any:
    """Return the value of an option that is not given; versions of click differ in how they say "none"."""
    if isinstance(param.default, str):
        return param.type_cast_value(ctx, param.default)
    return False if getattr(param, "is_flag", False) else () if param.multiple else None


def _give_way(ctx: click.Context, param: click.Parameter, other: click.Parameter) -> str:
    """Reset an option to its default, and return the message about it."""
    text = f"{_render(ctx, param)} is not used with {_render_other(ctx, other)}"
    name = param.name or ""
    ctx.params[name] = _default(ctx, param)
    ctx.set_parameter_source(name, ParameterSource.DEFAULT)
    return text


def _render(ctx: click.Context, param: click.Parameter) -> str:
    """Return an option as it could be written: its name, and its value if that is a short text or number.

    If it comes from a variable, the name of the variable.
    """
    import shlex  # late: most command lines have no message

    value = ctx.params.get(param.name or "")
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    shown = type(value) in (str, int, tuple) and 0 < len(text) <= _VALUE_LIMIT
    name = max(param.opts, key=len)
    separator = "=" if (param.metavar or "").startswith("[=") else " "
    if _level(ctx, param) == 1:
        name, separator = str(param.envvar), "="
    return f"{name}{separator}{shlex.quote(text)}" if shown else name


def _render_other(ctx: click.Context, param: click.Parameter) -> str:
    """Return the option that prevents another: as it could be written, and whether that is its default."""
    is_default = _level(ctx, param) == 0 and ctx.params.get(param.name or "") is not None
    return f"the default {_render(ctx, param)}" if is_default else _render(ctx, param)


def _make_sentence(names: Sequence[str], text: str) -> str:
    """Return the warning about some options, "A has no effect" or "A, B and C have no effect"."""
    subject = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"{subject} {text if len(names) == 1 else text.replace('has', 'have', 1)}"
