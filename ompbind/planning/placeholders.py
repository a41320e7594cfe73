"""Placeholders in texts of the user (`{rank}`, `{rank+8000}`, `{size*2-1}`), and `NAME=VALUE` with them.

    {NAME}   {NAME*INT}   {NAME+INT}   {NAME-INT}   {NAME*INT+INT}   {NAME*INT-INT}

- Braces without a name directly behind them are text: `{"a":1}`, `{0..3}`.
- Braces directly behind a `$` are text: `${rank}` belongs to a shell.
- `{{rank}}` is the text `{rank}`: a second pair of braces around a placeholder is removed.
- Braces that begin with the name of a placeholder and go on otherwise, as `{rank:02}`, are an error.
- A name without a value is an error in options. In the words of a command it is text.
- `{cpus:NAME}` are the CPUs of another group of the run; {group}, {group_rank} and {group_size} have a value
  in runs with groups only.

Text that was probably meant as a placeholder is an error in options: `{8000+rank}`, `{ rank }`, and `{rank`
at the end. In a command it causes a warning: `{8000+rank}`, and `{rank}` if it is not filled, `{RANK}` if it
is. Braces of code are not meant: `print(f"{rank}")`, `#{rank}`, `%{size}`, `$h{rank}`, `{ size++ }`.
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

ALL_NAMES = (*NAMES, *GROUP_NUMBERS, "group", OF_GROUP)
"""All placeholders."""

Fields: TypeAlias = Mapping[str, int | str]
"""The values of placeholders for one rank, by name."""

# Not compiled here: most command lines have no braces.

_FORM = r"\$\{+|\{(?P<doubled>\{)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<rest>[^{}]*)\}(?(doubled)\})"
"""Braces that begin with a name, perhaps two pairs, or the braces of a shell behind `$`."""

_ARITHMETIC = r"(?:\*([0-9]{1,18}))?([+-][0-9]{1,18})?"
"""Factor and offset behind a name; with 18 digits each, a result has at most 40."""

_SIGNS = r"[0-9+* -]*"
_MEANT = rf"\{{(?![^}}]*(?:\+\+|--))(?P<text>{_SIGNS}\b(?:{'|'.join(NAMES)})\b{_SIGNS})(?P<end>\}}|\Z)"
"""Braces with nothing but a known name and numbers; the last pair may not be closed."""

_OUTSIDE = rf"(?<![\w.+*-])(?P<sum>\d{{1,18}}[+*])\{{(?P<name>{'|'.join(NUMBERS)})\}}(?![\w.])"
"""A sum with the name alone in braces."""

_BEFORE_OTHER_BRACES = r"(?:[{#@\\]|[$%]\w*)$"
"""What is directly before braces of shells, templates and formats."""

_CODE = r"(?<![$(])\("
"""A parenthesis of code; `$(` is of a shell."""

_SUM = r"(?:(\d{1,18})\+)?(?:(\d{1,18})\*)?([a-z_]+)(?:\*(\d{1,18}))?([+-]\d{1,18})?"
"""A sum in any order: offset, factor, name, factor, offset."""


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
    if "{" not in text:
        return
    _parse(text, tuple(names), is_command=False)
    for found in re.finditer(_OUTSIDE, text):
        raise PositionError(
            f"{found[0]} is not computed",
            text=text,
            span=found.span(),
            hint=f"write {_spell(found['sum'] + found['name'])}",
        )
    for found in _find_meant(text, re.IGNORECASE):
        meant, is_closed = _spell(found["text"]), bool(found["end"])
        if found[0] != meant:
            hint = f"write {meant or EXAMPLE}" if is_closed else _QUOTE
            message = f"{found[0]} is not {'a placeholder' if is_closed else 'closed'}"
            raise PositionError(message, text=text, span=found.span(), hint=hint)


_QUOTE = "quote the value, and write no spaces in braces, as in 'PORT={rank+8000}'"


def has_placeholders(text: str) -> bool:
    """Return whether something is filled in the text of an option; raises PositionError as `check`."""
    return "{" in text and not all(
        isinstance(part, str) for part in _parse(text, ALL_NAMES, is_command=False)
    )


def make_literal(text: str) -> str:
    """Return a text that `fill` turns into this text: the braces of placeholders are doubled."""

    def double(form: re.Match[str]) -> str:
        is_filled = form["name"] and (form["name"] in NAMES or re.fullmatch(_ARITHMETIC, form["rest"]))
        return f"{{{form[0]}}}" if is_filled else form[0]

    return re.sub(_FORM, double, text)


def _compute(part: Placeholder, text: str, fields: Fields, where: str) -> str:
    """Return the value of a placeholder; raises PositionError, which names the rank, for a negative value."""
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
        raise PositionError(message, text=text, span=part.span, hint=hint)
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
        elif _is_of_group(form, names):
            parts.append(Placeholder(name=name + rest, span=form.span()))
        elif numbers is None or name not in names or (rest and name not in (*NUMBERS, *GROUP_NUMBERS)):
            raise _make_error(form, names)
        else:
            factor, offset = int(numbers[1] or 1), int(numbers[2] or 0)
            parts.append(Placeholder(name=name, factor=factor, offset=offset, span=form.span()))
    return tuple(part for part in (*parts, text[at:]) if part)


def _is_of_group(form: re.Match[str], names: Collection[str]) -> bool:
    """Return whether a placeholder stands for the CPUs of a group that may exist."""
    written = f"{form['name']}{form['rest']}"
    return (
        written.startswith(OF_GROUP)
        and len(written) > len(OF_GROUP)
        and (written in names or OF_GROUP in names)
    )


def _make_error(form: re.Match[str], names: Collection[str]) -> PositionError:
    """Return what is wrong with a placeholder, and what to write instead."""
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
        meant = _spell(shown[1:-1])
        hint = f"{f'write {meant}' if meant else f'for example {{{name}*2+8000}}'}; {literal}"
    return PositionError(message, text=form.string, span=form.span(), hint=hint)


EXAMPLE = "for example {rank*2+8000}"
"""What to write for a sum that cannot be computed."""


def find_unfilled(text: str, *, is_filled: bool = False) -> Iterator[tuple[str, str]]:
    """Yield what was probably meant as a placeholder in a command, and its correct spelling, "" for none.

    Placeholders that are written correctly are yielded too: the command may not be filled. If it is filled,
    names in capital letters count too.
    """
    for found in _find_meant(text, re.IGNORECASE if is_filled else 0):
        inner = found["text"]
        is_placeholder = inner == inner.strip() or inner.strip().lower() not in NAMES  # `{ rank }` is none
        if found["end"] and is_placeholder:
            yield found[0], _spell(inner)


def _find_meant(text: str, flags: int) -> Iterator[re.Match[str]]:
    """Yield the braces that were probably meant as placeholders, also correct placeholders."""
    if "{" not in text or re.search(_CODE, text):
        return
    for found in re.finditer(_MEANT, text, flags):
        if not re.search(_BEFORE_OTHER_BRACES, text[: found.start()]):
            yield found


def _spell(inner: str) -> str:
    """Return a sum as a placeholder; "" if it cannot be computed."""
    inner = inner.strip().lower()
    found = re.fullmatch(_SUM, inner.replace(" ", ""), re.ASCII)
    if found is None:
        return ""
    before, left, name, right, behind = found.groups(default="")
    if (before and behind) or (left and right) or (name in TEXTS and inner != name):
        return ""
    factor = left or right
    return f"{{{name}{factor and f'*{factor}'}{before and f'+{before}'}{behind}}}"


_NAME_RULE = "letters, digits and underscores (no digit first)"


def parse_assignment(text: str) -> tuple[str, str]:
    """Return (NAME, VALUE) of "NAME=VALUE"; placeholders in VALUE are checked, and stay.

    Raises OptionError if the name or the "=" is missing, PositionError for a wrong placeholder.
    """
    name, equals, value = text.partition("=")
    if not (equals and _is_name(name)) or "\0" in value:
        raise OptionError(
            f"{text!r} is not NAME=VALUE",
            hint=f"write a name of {_NAME_RULE}, as in PORT={{rank+8000}}",
        )
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
    start = len(line) - len(line.lstrip(" \t"))
    if line[start : start + 1] in ("", "#"):
        return
    name, equals, value = line[start:].partition("=")
    if not _is_name(name):
        stop = start + max(1, len(name))
        hint = f"write NAME=VALUE, NAME alone, or # and a comment; a name has {_NAME_RULE}"
        raise PositionError(
            f"{name!r} is not the name of a variable", text=line, span=(start, stop), hint=hint
        )
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
