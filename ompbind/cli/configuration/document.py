"""One configuration file as TOML: its values, and errors with the position of a key in the file."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from ompbind.cli.configuration.key_positions import KeyPath, KeyPosition, find_positions
from ompbind.cli.configuration.read_files import FileContent, FileKind
from ompbind.cli.configuration.search import PYPROJECT
from ompbind.cli.options.option import Option
from ompbind.errors import ConfigurationError
from ompbind.record import Record

DOTS_LIMIT = 100
"""Dots in a line of a file: the parser needs memory for the square of the parts of a dotted key."""

SHOWN = 60
"""Characters of a value in messages; keys and messages of the parser may be twice as long."""


class Document(Record):
    """A parsed file: its text, the table for ompbind and its path, and the positions of all keys.

    `keys` are the options that a file can contain.
    """

    path: str
    text: str
    root: KeyPath
    values: Mapping[str, Any]
    positions: Mapping[KeyPath, KeyPosition]
    keys: Mapping[str, Option]

    def find(self, path: KeyPath) -> KeyPosition | None:
        """Return the position of a key below the root, or of the value that it is in; None if unknown."""
        full = self.root + path
        return next(
            (found for end in range(len(full), 0, -1) if (found := self.positions.get(full[:end]))), None
        )

    def render_table(self, path: KeyPath) -> str:
        """Return the header of a table below the root."""
        return f"[{render_key(self.root + path)}]"

    def error(
        self, path: KeyPath, message: str, hint: str = "", *, separator: str = " "
    ) -> ConfigurationError:
        """Return an error about a key below the root; its message continues a sentence about the key."""
        where = self.find(path)
        message = f"{render_key(path)}{separator}{message}"
        if where is None:
            return ConfigurationError(f"{self.path}: {message}", hint=hint)
        text = self.text.split("\n")[where.line - 1]
        return ConfigurationError(
            f"{self.path}:{where.line}: {message}", text=text, span=(where.start, where.stop), hint=hint
        )


def parse_document(content: FileContent, keys: Mapping[str, Option]) -> Document:
    """Parse a file; raises ConfigurationError for invalid TOML."""
    text = _decode(content)
    values = _load(content.path, text)
    root = ("tool", "ompbind") if content.path.rpartition("/")[2] == PYPROJECT else ()
    for name in root:
        values = values.get(name, {})
        if not isinstance(values, dict):
            raise ConfigurationError(f"{content.path}: {'.'.join(root)} is not a table")
    if root and content.kind is FileKind.NAMED and not values:
        hint = "add it, or omit --config"
        raise ConfigurationError(f"{content.path}: there is no table [{'.'.join(root)}]", hint=hint)
    return Document(
        path=content.path, text=text, root=root, values=values, positions=find_positions(text), keys=keys
    )


def _decode(content: FileContent) -> str:
    """Return the text of a file; raises ConfigurationError for text that is not UTF-8, or too many dots."""
    try:
        text = content.data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.data.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{content.path}:{line}: the text is not UTF-8") from error
    for number, line_text in enumerate(text.split("\n"), 1):
        if line_text.count(".") > DOTS_LIMIT:
            message = f"{content.path}:{number}: more than {DOTS_LIMIT} dots in a line"
            raise ConfigurationError(message, hint="write the values in several lines")
    return text


def _load(path: str, text: str) -> dict[str, Any]:
    """Parse TOML; raises ConfigurationError with the position of the error."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigurationError(f"{path}: too many brackets inside each other") from error
    except ValueError as error:  # TOMLDecodeError, and numbers that are too long
        message, line, column = _split_position(str(error), text)
        message = _clip(f"{message[:1].lower()}{message[1:]}")
        if not line:
            raise ConfigurationError(f"{path}: {message}") from error
        line_text = text.split("\n")[line - 1]
        raise ConfigurationError(
            f"{path}:{line}: {message}", text=line_text, span=(column - 1, column)
        ) from error


def _split_position(message: str, text: str) -> tuple[str, int, int]:
    """Return a message of tomllib without its position, the line and the column; 0 if they are unknown."""
    found = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if not found:
        return message, 0, 0
    if found[1]:
        return message[: found.start()], int(found[1]), int(found[2])
    lines = text.rstrip("\n").split("\n")
    return message[: found.start()], len(lines), len(lines[-1]) + 1


def render_key(path: KeyPath) -> str:
    """Return a dotted key as TOML writes it, cut if it is long."""
    return _clip(".".join(part if re.fullmatch(r"[\w-]+", part) else repr(part) for part in path))


def _clip(text: str) -> str:
    return text if len(text) <= 2 * SHOWN else f"{text[: 2 * SHOWN]}..."
