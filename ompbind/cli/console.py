"""Messages of ompbind on standard error, text on standard output, and what the terminal can show."""

import os
import sys
from typing import TextIO

import click

from ompbind.report.text import PIPE, Screen, render_paragraph
from ompbind.text import mask_text

NARROW = 40  # the least width of a line, in characters, that texts are made for

HELP_SHOWN = "ompbind.help"  # the key in the context of click of the name of the option that shows the help


def make_help_option(*names: str, help: str = "Show this message and exit.", text: str = "") -> click.Option:
    """Return an option that shows the help, or a text; it has the names -h and --help without names.

    The options of click look for translations at each start, which takes a millisecond.
    """

    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            ctx.meta[HELP_SHOWN] = param.name
            click.echo(text or ctx.get_help(), color=ctx.color)
            ctx.exit()

    flags = {"is_flag": True, "is_eager": True, "expose_value": False}
    return click.Option(names or ("-h", "--help"), callback=show, help=help, **flags)


def write_stderr(text: str) -> None:
    """Write text to standard error; if nothing reads it, ranks and exit codes are not affected."""
    try:
        _write(sys.stderr, text)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def write_stdout(text: str) -> None:
    """Write text to standard output."""
    _write(sys.stdout, text)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is not None:  # it was closed when ompbind started
        stream.write(f"{text}\n")
        stream.flush()


def print_message(line: str) -> None:
    """Write one message to standard error, with the name of ompbind before it."""
    write_stderr(render_message(line))


def render_message(line: str) -> str:
    """Return a message with the name of ompbind before it, wrapped, without secret values."""
    return render_paragraph("ompbind", mask_text(line), read_message_width())


def read_message_width() -> int:
    """Return how many characters a line of a message on standard error may have."""
    return read_screen(sys.stderr).text_width


def read_screen(stream: TextIO | None = None) -> Screen:
    """Read what a standard file shows: its size, colours and characters; None is standard output.

    Anything but a terminal has the usual size and no colours.
    """
    stream = stream or sys.stdout
    try:
        width, height = os.get_terminal_size(stream.fileno())
    except (AttributeError, OSError, ValueError):  # the stream is None, or no terminal, or closed
        width, height = 0, 0
    encoding = getattr(stream, "encoding", None) or ""
    return Screen(
        width=max(width or PIPE.width, NARROW),
        height=height or PIPE.height,
        styled=supports_colours(stream),
        is_unicode=encoding.lower().replace("-", "") == "utf8",
    )


def supports_colours(stream: TextIO | None) -> bool:
    """Return whether a standard file is a terminal with colours, and the user has not disabled them."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return wanted and stream is not None and stream.isatty()
