"""Placeholders in texts of the user (`{rank}`, `{rank+8000}`, `{size*2-1}`), and `NAME=VALUE` with them.

    {NAME}   {NAME*INT}   {NAME+INT}   {NAME-INT}   {NAME*INT+INT}   {NAME*INT-INT}

- Braces without a name directly behind them are text: `{"a":1}`, `{0..3}`.
- Braces directly behind a `$` are text: `${rank}` belongs to a shell.
- `{{rank}}` is the text `{rank}`: a second pair of braces around a placeholder is removed.
- Braces that begin with the name of a placeholder and go on otherwise, as `{rank:02}`, are an error.
- A name without a value is an error in options. In the words of a command it is text.
- `{cpus:NAME}` are the CPUs of another group of the run; {group}, {group_rank} and {group_size} have a value
  in runs with groups only.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import TypeAlias

from ompbind.errors import OptionError, PositionError
from ompbind.record import Record
from ompbind.text import suggest_name

NUMBERS = ("rank", "local_rank", "size", "threads")
TEXTS = ("cpus", "run_id")
NAMES = (*NUMBERS, *TEXTS)
"""All placeholders of a run without groups; NUMBERS allow arithmetic."""

GROUP_NUMBERS = ("group_rank", "group_size")
OF_GROUP = "cpus:"
"""What `{cpus:NAME}` begins with; as a name, it stands for each name of a group."""

ALL_NAMES = (*NAMES, *GROUP_NUMBERS, "group", OF_GROUP)  # all placeholders
Fields: TypeAlias = Mapping[str, int | str]  # the values of placeholders for one rank, by name

# Not compiled here: most command lines have no braces.

_FORM = r"\$\{+|\{(?P<doubled>\{)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<rest>[^{}]*)\}(?(doubled)\})"
"""Braces that begin with a name, perhaps two pairs, or the braces of a shell behind `$`."""

_ARITHMETIC = r"(?:\*([0-9]{1,18}))?([+-][0-9]{1,18})?"
"""Factor and offset behind a name; with 18 digits each, a result has at most 40."""


class Placeholder(Record):
    """A placeholder in a text: its value is the value of `name`, times `factor`, plus `offset`."""

    name: str
    factor: int = 1
    offset: int = 0
    span: tuple[int, int]


def fill(text: str, fields: Fields, where: str = "", *, is_command: bool = False) -> str:
    """Return a text with its placeholders filled in; in a word of a command, names that `fields` lacks stay.

    `where` names the text in the error. Raises PositionError for a placeholder that is unknown or wrong, or
    whose value is negative.
    """
    if "{" not in text:
        return text
    parts = _parse(text, tuple(fields), is_command=is_command)
    return "".join(part if isinstance(part, str) else _compute(part, text, fields, where) for part in parts)


def check(text: str, names: Collection[str] = ALL_NAMES) -> None:
    """Raise PositionError for a placeholder in the text of an option that is not one of `names`, or wrong."""
    if "{" in text:
        _parse(text, tuple(names), is_command=False)


def has_placeholders(text: str) -> bool:
    """Return whether something is filled in the text of an option; raises PositionError as `check`."""
    parts = _parse(text, ALL_NAMES, is_command=False) if "{" in text else ()
    return any(isinstance(part, Placeholder) for part in parts)


def make_literal(text: str) -> str:
    """Return a text that `fill` turns into this text: the braces of placeholders are doubled."""

    def double(form: re.Match[str]) -> str:
        is_filled = form["name"] and (form["name"] in NAMES or re.fullmatch(_ARITHMETIC, form["rest"]))
        return f"{{{form[0]}}}" if is_filled else form[0]

    return re.sub(_FORM, double, text)


def _compute(part: Placeholder, text: str, fields: Fields, where: str) -> str:
    value = fields[part.name]
    if isinstance(value, str):
        return value
    number = value * part.factor + part.offset
    if number < 0:
        shown = text[slice(*part.span)]
        hint = "ranks are counted from 0: add a number so that each result is 0 or more"
        if part.name == "threads":
            hint = "subtract less, or give each rank more CPUs"
        place = f"{shown} in {where}" if where else shown
        message = f"rank {fields['rank']}: {place} is {number}, but must not be negative"
        before = f"{where}=" if _is_name(where) else ""  # of a variable, whose value may be secret
        start, stop = (len(before) + position for position in part.span)
        raise PositionError(message, text=f"{before}{text}", span=(start, stop), hint=hint)
    return str(number)


@cache
def _parse(text: str, names: tuple[str, ...], *, is_command: bool) -> tuple[str | Placeholder, ...]:
    """Return the parts of a text, which is parsed once for all ranks; raises PositionError as `check`."""
    parts: list[str | Placeholder] = []
    at = 0
    for form in re.finditer(_FORM, text):
        name, rest = form["name"], form["rest"]
        numbers = re.fullmatch(_ARITHMETIC, rest or "")
        is_text = name not in names if is_command else not (name in ALL_NAMES or numbers)
        if not name or is_text:
            continue
        parts.append(text[at : form.start()])
        at = form.end()
        if form["doubled"]:
            parts.append(form[0][1:-1])
        elif f"{name}{rest[:1]}" == OF_GROUP and rest != ":" and {name + rest, OF_GROUP} & {*names}:
            parts.append(Placeholder(name=name + rest, span=form.span()))
        elif numbers is None or name not in names or (rest and name not in (*NUMBERS, *GROUP_NUMBERS)):
            raise _make_error(form, names)
        else:
            factor, offset = int(numbers[1] or 1), int(numbers[2] or 0)
            parts.append(Placeholder(name=name, factor=factor, offset=offset, span=form.span()))
    return tuple(part for part in (*parts, text[at:]) if part)


def _make_error(form: re.Match[str], names: Collection[str]) -> PositionError:
    shown, name = form[0], form["name"]
    known = ", ".join(f"{{{name}}}" for name in names if name != OF_GROUP)
    literal = f"for the text {shown}, write {{{shown}}}"
    if f"{name}{form['rest']}".startswith(OF_GROUP):
        groups = [found.removeprefix(OF_GROUP) for found in names if found.startswith(OF_GROUP)]
        message = f"{shown}: the run has no group {form['rest'][1:]!r}"
        hint = f"its groups are {', '.join(groups)}" if groups else f"--name names a group; {literal}"
    elif name not in ALL_NAMES:
        near = suggest_name(name, names)
        message = f"unknown placeholder {shown}"
        hint = f"did you mean {{{near}}}? {literal}" if near else f"use {known}; {literal}"
    elif name not in names:
        message, hint = f"{shown} has no value here", f"use {known}; {literal}"
    elif name in (*TEXTS, "group"):
        message = f"{{{name}}} is not a number, so nothing can be added or multiplied"
        hint = f"write {{{name}}}; numbers are {', '.join(NUMBERS)}"
    else:
        message = f"{shown} cannot be computed: a whole number follows *, + or -, without spaces"
        hint = f"for example {{{name}*2+8000}}; {literal}"
    return PositionError(message, text=form.string, span=form.span(), hint=hint)


_CODE = r"(?<![$(])\("  # a parenthesis of code; `$(` is of a shell


def find_unfilled(word: str) -> Iterator[str]:
    """Yield the placeholders in a word of a command, which stay if the command is not filled.

    Braces of code are none: `print(f"{rank}")`, `#{rank}`, `%{size}`.
    """
    if "{" not in word or re.search(_CODE, word):
        return
    for form in re.finditer(_FORM, word):
        is_other = form["doubled"] or word[: form.start()].endswith(("#", "%", "@", "\\"))
        if form["name"] in NAMES and re.fullmatch(_ARITHMETIC, form["rest"]) and not is_other:
            yield form[0]


_NAME_RULE = "letters, digits and underscores (no digit first)"


def parse_assignment(text: str) -> tuple[str, str]:
    """Return (NAME, VALUE) of "NAME=VALUE"; placeholders in VALUE are checked, and stay.

    Raises OptionError if the name or the "=" is missing, PositionError for a wrong placeholder.
    """
    name, equals, value = text.partition("=")
    if not (equals and _is_name(name)) or "\0" in value:
        hint = f"write a name of {_NAME_RULE}, as in PORT={{rank+8000}}"
        hint = "omit it: ranks inherit all variables" if _is_name(text) else hint
        raise OptionError(f"{text!r} is not NAME=VALUE", hint=hint)
    check(text)
    return name, value


def parse_env_file(text: str, path: str, env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the (NAME, value) pairs of a file as `docker run --env-file` reads it.

    A line is NAME=VALUE, NAME alone (the value in `env`; no pair if there is none), empty, or a comment that
    begins with "#". Spaces before a name do not count; quotes and all other spaces belong to the value.
    Placeholders in VALUE are checked, and stay; a value of `env` is not filled later. Raises PositionError,
    with `path` and the number of the line.
    """
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        try:
            pairs.extend(_parse_line(line.removesuffix("\r"), env))
        except PositionError as error:
            error.message = f"{path}, line {number}: {error.message}"
            raise
    return tuple(pairs)


def _parse_line(line: str, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    stripped = line.lstrip(" \t")
    start = len(line) - len(stripped)
    if stripped[:1] in ("", "#"):
        return
    name, equals, value = stripped.partition("=")
    if not _is_name(name):
        span = (start, start + max(1, len(name)))
        hint = f"write NAME=VALUE, NAME alone, or # and a comment; a name has {_NAME_RULE}"
        raise PositionError(f"{name!r} is not the name of a variable", text=line, span=span, hint=hint)
    if "\0" in value:
        at = line.index("\0")
        raise PositionError("a value cannot contain a null character", text=line, span=(at, at + 1))
    check(line)
    if equals:
        yield name, value
    elif name in env:
        yield name, make_literal(env[name])


def _is_name(name: str) -> bool:
    return name.isascii() and name.isidentifier()
