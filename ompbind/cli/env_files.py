"""The option --env-file: files with variables of ranks."""

import os
from collections.abc import Iterable, Iterator

from ompbind.errors import RequestError
from ompbind.planning.assignments import parse_env_file

_MOST_BYTES = 1 << 20
"""Bytes of a file of variables at most; the kernel allows a rank about as many."""


def read_env_files(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the (NAME, value) pairs of files of variables, in order; raises RequestError or PositionError."""
    for path in paths:
        yield from parse_env_file(_read_text(path), path, os.environ)


def _read_text(path: str) -> str:
    """Return the text of a small file."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RequestError(
            f"cannot read {path}: {error.strerror}", hint="give the path of a file with lines NAME=VALUE"
        ) from error
    if len(data) > _MOST_BYTES:
        raise RequestError(
            f"{path} is larger than 1 MiB", hint="write a variable in each line, as NAME=VALUE"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{path}, line {line}: the text is not UTF-8", hint="save it as UTF-8") from error
