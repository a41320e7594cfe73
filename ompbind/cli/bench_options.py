"""The options of `bench` that no other verb has: what varies, what is measured, and where results go."""

from ompbind.bench.candidates import parse_variation
from ompbind.bench.metrics import read_pattern
from ompbind.bench.records import Combine
from ompbind.cli.bench_variations import complete_variation
from ompbind.cli.option import FILES, Option
from ompbind.cli.planning_options import PLANNING_OPTIONS
from ompbind.cli.readers import (
    at_least,
    check_placeholders,
    name_of,
    one_of,
    read_seconds,
    read_wrapper_words,
)
from ompbind.cli.verbs import COMPARING, MEASURING, OUTPUT
from ompbind.errors import OptionError
from ompbind.execution.readiness import TCP, make_check
from ompbind.report.bench.export import EXPORTS, render_export_names

BENCH = ("bench",)

TABLE, LINES = "table", "jsonl"
"""Values of --format."""

SHOWING = ("show", "fail_above", "export", "format", "quiet", "verbose", "config", "preset")
"""Options that have an effect with --show; the last two choose files with defaults for the others."""


def _read_variation(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read --vary OPTION=V1,V2 as the only item; the values are checked where candidates are made."""
    values = parse_variation(text)
    return ((values[0].key, tuple(value.text for value in values)),)


def _complete_variation(text: str) -> tuple[str, ...]:
    """Return the options that can be varied, with "=", or after "=" the words of the option."""
    return complete_variation(text, PLANNING_OPTIONS)


def _read_pattern(text: str) -> tuple[str, ...]:
    """Read the regular expression of a metric, whose first group is the number, as the only item."""
    read_pattern(text)
    return (text,)


def _read_ready(text: str) -> str:
    """Read what --ready waits for: a regular expression, or a port that may have placeholders."""
    if text.startswith(TCP) and "{" in text:
        check_placeholders(text.removeprefix(TCP))  # the port of each rank is checked before the session
    else:
        make_check(text, ())
    return text


def _read_time(text: str) -> float:
    """Read a time that is longer than 0."""
    seconds = read_seconds(text)
    if not seconds:
        raise OptionError("the time must be longer than 0")
    return seconds


def _read_fraction(text: str) -> float:
    """Read a part of 1: "2%" or "0.02"."""
    number = text.removesuffix("%")
    is_decimal = number.replace(".", "", 1).isdigit() and number.isascii()
    fraction = float(number) / (100 if number != text else 1) if is_decimal else -1.0
    if not 0 <= fraction < 1:
        raise OptionError(f"{text!r} is not a part of 1: write 2% or 0.02")
    return fraction


def _read_export(text: str) -> tuple[tuple[str, str], ...]:
    """Read FORMAT or FORMAT=FILE as the only item; the file is "" for standard output."""
    name, equals, path = text.partition("=")
    if equals and not path:
        raise OptionError("the name of a file is missing")
    return ((one_of(EXPORTS)(name), path),)


BENCH_OPTIONS = (
    Option("--vary", section=COMPARING, verbs=BENCH, read=_read_variation, multiple=True,
           metavar="OPTION=V,V", complete=_complete_variation, everyday=True,
           help="Compare values of an option: smt=1,2 or 'mask=0,2;1,3'; several: all combinations",
           default_help="a choice"),
    Option("--max-rounds", section=COMPARING, verbs=BENCH, read=at_least(1), default="40",
           number=True, metavar="N", help="Rounds at most, for the choice and again for its confirmation"),
    Option("--budget", section=COMPARING, verbs=BENCH, read=_read_time, number=True,
           metavar="TIME", everyday=True, help="Stop after TIME (90, 10m)", default_help="when decided"),
    Option("--matters", section=COMPARING, verbs=BENCH, read=_read_fraction, default="2%",
           number=True, metavar="PART", help="A smaller difference does not matter: 2% or 0.02"),
    Option("--fixed-work", section=COMPARING, verbs=BENCH, flag=True,
           help="All ranks together do one job, so compare different numbers of ranks"),
    Option("--seed", section=COMPARING, verbs=BENCH, read=at_least(0), number=True, metavar="N",
           is_setting=False, help="Seed of the random order within rounds", default_help="random"),
    Option("--metric", section=MEASURING, verbs=BENCH, read=_read_pattern, multiple=True,
           metavar="REGEX", everyday=True,
           help="Compare a number in the output: 'time: ([0-9.]+)'",
           default_help="wall time of the slowest rank"),
    Option("--higher", section=MEASURING, verbs=BENCH, flag=True, everyday=True,
           help="Higher values of --metric are better"),
    Option("--combine", section=MEASURING, verbs=BENCH, read=one_of(Combine), words=tuple(Combine),
           metavar="HOW", help="One value from the values of all ranks: {words}",
           default_help="sum with --higher, else slowest"),
    Option("--duration", section=MEASURING, verbs=BENCH, read=_read_time, number=True,
           metavar="TIME", everyday=True, help="Ranks are servers: measure TIME, then stop them"),
    Option("--ready", section=MEASURING, verbs=BENCH, read=_read_ready, default="",
           metavar="REGEX|tcp:PORT",
           help="With --duration, measure once a line of each rank matches REGEX, or PORT accepts"
                " connections; PORT may use {rank+8000}"),
    Option("--load", section=MEASURING, verbs=BENCH, read=read_wrapper_words, metavar="CMD",
           help="With --duration, run a load generator on reserved cores; --metric reads its output"),
    Option("--format", section=OUTPUT, verbs=BENCH, read=one_of((TABLE, LINES)),
           words=(TABLE, LINES), default=TABLE, is_setting=False,
           help="Standard output: {words}; jsonl: a line for each event of the session"),
    Option("--results", section=OUTPUT, verbs=BENCH, read=name_of("a file"), metavar="FILE",
           complete=FILES, everyday=True, is_setting=False,
           help="Append each run to FILE, and resume from it, also with more --max-rounds"),
    Option("--show", section=OUTPUT, verbs=BENCH, flag=True, everyday=True, is_setting=False,
           help="Show sessions, compare several: --show FILE..."),
    Option("--fail-above", section=OUTPUT, verbs=BENCH, read=_read_fraction, number=True,
           metavar="PART", is_setting=False,
           help="With --show, exit code 1 if the last session is slower than the first by more than PART"),
    Option("--export", section=OUTPUT, verbs=BENCH, read=_read_export, multiple=True,
           metavar="FORMAT", everyday=True, words=tuple(EXPORTS), is_setting=False,
           help=f"Write results: {render_export_names()}; FORMAT=FILE: not to standard output"),
    Option("--save-preset", section=OUTPUT, verbs=BENCH, read=name_of("a preset"), metavar="NAME",
           everyday=True, is_setting=False, help="Save the best options as [preset.NAME]"),
)  # fmt: skip
