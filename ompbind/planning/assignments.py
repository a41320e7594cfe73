"""Variables that the user sets in ranks: `NAME=VALUE` of --env, and the lines of files of --env-file."""

from collections.abc import Iterator, Mapping

from ompbind.errors import OptionError, PositionError
from ompbind.planning.placeholders import check, make_literal

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
