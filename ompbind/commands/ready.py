"""What --ready says, for each rank: when the rank is ready.

    tcp:PORT      the port accepts connections on this machine
    http:URL      a GET request is answered with a status below 400; the URL may be http://… or //…
    text:REGEX    a line of the output matches; "text:" may be omitted
    exec:CMD      the command exits with code 0

The text may have placeholders, as in tcp:{rank+8000}; they are filled before it is read.
"""

import re
import shlex
import warnings
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

from ompbind.commands.placeholders import check as check_placeholders
from ompbind.commands.rank_command import EXEC, HTTP, TCP, TEXT
from ompbind.errors import OptionError, PositionError
from ompbind.text import whole_number

_PORTS = range(1, 1 << 16)


def check_ready(ready: str) -> None:
    """Raise OptionError or PositionError for a wrong text of --ready; placeholders are not filled."""
    if re.fullmatch(r"((localhost|[\d.]*):)?(\d+|\{\w+[*+\d-]*\})", ready):
        port = ready.rpartition(":")[2]
        raise OptionError(f"{ready!r} is a port or a text", hint=f"write {TCP}{port}, or {TEXT}{ready}")
    if "{" in ready and ready.startswith((TCP, HTTP, EXEC)):
        check_placeholders(ready)
    else:
        read_ready(ready)


def read_ready(ready: str) -> int | SplitResult | re.Pattern[str] | list[str]:
    """Read the text of --ready, with its placeholders filled: a port, a URL, a pattern, or a command.

    Raises PositionError and OptionError for a wrong port, URL, pattern or command.
    """
    if ready.startswith(TCP):
        digits = ready.removeprefix(TCP)
        if (port := whole_number(digits)) and port in _PORTS:
            return port
        wrong = f"{digits!r} is not a port: write a number from {_PORTS[0]} to {_PORTS[-1]}"
        hint = "for example tcp:8000, or tcp:{rank+8000} for several ranks"
        raise PositionError(wrong, text=ready, span=(len(TCP), len(ready)), hint=hint)
    if ready.startswith(HTTP):  # it may be written once or twice
        text = ready.removeprefix(HTTP)
        with suppress(ValueError):
            url = urlsplit(text if text.startswith(HTTP) else HTTP + text)
            if url.hostname and url.port != 0:
                return url
        hint = "for example http://127.0.0.1:8000/health"
        raise OptionError(f"{ready!r} is not the URL of an HTTP server", hint=hint)
    if ready.startswith(EXEC):
        return _split(ready.removeprefix(EXEC))
    return compile_pattern(ready.removeprefix(TEXT))


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression; raises PositionError if it is wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of syntax that may change its meaning in later versions
            return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        at = getattr(error, "pos", None) or 0
        wrong = f"wrong regular expression: {getattr(error, 'msg', 'it is too large')}"
        hint = "the syntax is that of Python's module re; a backslash makes a character literal, as in '\\('"
        raise PositionError(wrong, text=text, span=(at, at + 1), hint=hint) from None


def _split(text: str) -> list[str]:
    try:
        if words := shlex.split(text):
            return words
    except ValueError as error:
        raise OptionError(f"{EXEC}{text}: {error}", hint="close each quote") from None
    raise OptionError(f"{EXEC} names no command", hint="for example exec:'pg_isready -p 5432'")
