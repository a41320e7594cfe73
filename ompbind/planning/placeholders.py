"""Placeholders in texts of the user: `{rank}`, `{rank+8000}`, `{size*2-1}`.

    {NAME}   {NAME*INT}   {NAME+INT}   {NAME-INT}   {NAME*INT+INT}   {NAME*INT-INT}

- Braces without a name directly behind them are text: `{"a":1}`, `{ rank }`, `{0..3}`.
- Braces directly behind a `$` are text: `${rank}` belongs to a shell.
- `{{rank}}` is the text `{rank}`: a second pair of braces around a placeholder is removed.
- Braces that begin with the name of a placeholder and go on otherwise, as `{rank:02}`, are an error.
- A name without a value is an error in options. In the words of a command it is text.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from ompbind.errors import OptionError, PositionError
from ompbind.record import Record
from ompbind.text import suggest_name

NUMBERS = ("rank", "local_rank", "size")
TEXTS = ("cpus", "run_id")
NAMES = (*NUMBERS, *TEXTS)
"""All placeholders; NUMBERS allow arithmetic."""

Fields: TypeAlias = Mapping[str, int | str]
"""The values of placeholders for one rank, by name."""

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
_NAME_CHARACTERS = _LETTERS + "0123456789"
_DIGITS = 18  # digits of a number at most: each result then has at most 40


class Placeholder(Record):
    """A placeholder in a text: its value is the value of `name`, times `factor`, plus `offset`."""

    name: str
    factor: int = 1
    offset: int = 0
    span: tuple[int, int]


class _Form(Record):
    """Braces that begin with a name: `start` and `stop` in the text, and what follows the name.

    `doubled`: there are two pairs of braces.
    """

    start: int
    stop: int
    name: str
    rest: str
    doubled: bool


def fill(text: str, fields: Fields, where: str = "") -> str:
    """Return the text of an option with its placeholders filled in.

    `where` names the text in the error. Raises PositionError for a placeholder that is unknown or wrong, or
    whose value is negative.
    """
    return _fill(text, fields, where, is_command=False) if "{" in text else text


def fill_word(word: str, fields: Fields, where: str = "") -> str:
    """Return a word of a command with its placeholders filled in; names that `fields` lacks stay.

    `where` names the text in the error. Raises PositionError for a placeholder that is wrong, or whose value
    is negative.
    """
    return _fill(word, fields, where, is_command=True) if "{" in word else word


def check(text: str, names: Collection[str] = NAMES) -> None:
    """Raise PositionError for a placeholder in the text of an option that is not one of `names`, or wrong."""
    if "{" in text:
        _parse(text, tuple(names), is_command=False)


def has_placeholders(text: str) -> bool:
    """Return whether something is filled in the text of an option; raises PositionError as `check`."""
    return "{" in text and not all(isinstance(part, str) for part in _parse(text, NAMES, is_command=False))


def make_literal(text: str) -> str:
    """Return a text that `fill` turns into this text: the braces of placeholders are doubled."""
    parts, at = [], 0
    for form in _find_forms(text) if "{" in text else ():
        if form.name in NAMES or _parse_arithmetic(form.rest):
            parts += [text[at : form.start], "{", text[form.start : form.stop], "}"]
            at = form.stop
    return "".join([*parts, text[at:]])


def _fill(text: str, fields: Fields, where: str, *, is_command: bool) -> str:
    parts = _parse(text, tuple(fields), is_command=is_command)
    return "".join(part if isinstance(part, str) else _compute(part, text, fields, where) for part in parts)


def _compute(part: Placeholder, text: str, fields: Fields, where: str) -> str:
    """Return the value of a placeholder; raises PositionError, which names the rank, for a negative value."""
    value = fields[part.name]
    if isinstance(value, str):
        return value
    number = value * part.factor + part.offset
    if number < 0:
        shown = text[slice(*part.span)]
        hint = "ranks are counted from 0: add a number so that each result is 0 or more"
        place = f"{shown} in {where}" if where else shown
        message = f"rank {fields['rank']}: {place} is {number}, but must not be negative"
        raise PositionError(message, text=text, span=part.span, hint=hint)
    return str(number)


_Parts: TypeAlias = tuple[str | Placeholder, ...]

_parsed: dict[tuple[str, tuple[str, ...], bool], _Parts] = {}
"""The parts of texts: a text is parsed once for all ranks."""


def _parse(text: str, names: tuple[str, ...], *, is_command: bool) -> _Parts:
    """Return the parts of a text; raises PositionError for a placeholder that cannot be used."""
    key = (text, names, is_command)
    if key not in _parsed:
        _parsed[key] = _parse_new(*key)
    return _parsed[key]


def _parse_new(text: str, names: tuple[str, ...], is_command: bool) -> _Parts:
    parts: list[str | Placeholder] = []
    at = 0
    for form in _find_forms(text):
        arithmetic = _parse_arithmetic(form.rest)
        if form.name not in (names if is_command else NAMES) and (is_command or not arithmetic):
            continue
        parts.append(text[at : form.start])
        at = form.stop
        if form.doubled:
            parts.append(text[form.start + 1 : form.stop - 1])
        elif arithmetic is None or form.name not in names or (form.name in TEXTS and form.rest):
            raise _make_error(form, text, names)
        else:
            span = (form.start, form.stop)
            parts.append(Placeholder(name=form.name, factor=arithmetic[0], offset=arithmetic[1], span=span))
    return tuple(part for part in (*parts, text[at:]) if part)


def _find_forms(text: str) -> Iterator[_Form]:
    """Yield all braces that begin with a name, from left to right."""
    stop = 0
    while (start := text.find("{", stop)) >= 0:
        stop = start + 1
        if start and text[start - 1] == "$":
            while text.startswith("{", stop):
                stop += 1
            continue
        doubled = text.startswith("{", stop)
        first = stop + doubled
        behind = _find_end_of_name(text, first)
        end = _find_closing(text, behind)
        if behind > first and end >= 0 and (not doubled or text.startswith("}}", end)):
            stop = end + 1 + doubled
            yield _Form(
                start=start, stop=stop, name=text[first:behind], rest=text[behind:end], doubled=doubled
            )


def _find_end_of_name(text: str, at: int) -> int:
    """Return the index behind the name that begins at an index; the index itself if no name does."""
    if text[at : at + 1] not in _LETTERS:
        return at
    while at < len(text) and text[at] in _NAME_CHARACTERS:
        at += 1
    return at


def _find_closing(text: str, at: int) -> int:
    """Return the index of the next "}" from an index on, -1 if there is none before the next "{"."""
    opening = text.find("{", at)
    return text.find("}", at, opening if opening >= 0 else len(text))


def _parse_arithmetic(rest: str) -> tuple[int, int] | None:
    """Return factor and offset of the text behind a name; None if this text is wrong."""
    operator = "+" if "+" in rest else "-"
    product, has_offset, offset = rest.partition(operator)
    numbers = [product[1:]] * bool(product) + [offset] * bool(has_offset)
    if product[:1] not in ("", "*") or not all(map(_is_number, numbers)):
        return None
    return int(product[1:] or 1), int(f"{operator}{offset}" if offset else 0)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def _make_error(form: _Form, text: str, names: Collection[str]) -> PositionError:
    """Return what is wrong with a placeholder, and what to write instead."""
    shown = text[form.start : form.stop]
    known = ", ".join(f"{{{name}}}" for name in names)
    literal = f"for the text {shown}, write {{{shown}}}"
    if form.name not in NAMES:
        near = suggest_name(form.name, names)
        message = f"unknown placeholder {shown}"
        hint = f"did you mean {{{near}}}? {literal}" if near else f"use {known}; {literal}"
    elif form.name not in names:
        message, hint = f"{shown} has no value here", f"use {known}; {literal}"
    elif form.name in TEXTS:
        message = f"{{{form.name}}} is not a number, so nothing can be added or multiplied"
        hint = f"write {{{form.name}}}; numbers are {', '.join(NUMBERS)}"
    else:
        message = f"{shown} cannot be computed: a whole number follows *, + or -, without spaces"
        hint = f"for example {{{form.name}*2+8000}}; {literal}"
    return PositionError(message, text=text, span=(form.start, form.stop), hint=hint)


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
