"""Metrics: what --metric and --higher say, and the numbers in the output of ranks.

A pattern is searched in each line of standard output; if no line matches, in each line of standard error. The
last match counts, because programs print progress first and the result last. Its first group is the number:

    rank 0    tokens/s: 11.0        rank 1    tokens/s: 9.0
              tokens/s: 12.5  ← last          tokens/s: 10.5  ← last        sum: 23.0
"""

import math
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from itertools import chain, count

from ompbind.bench.records import Metric
from ompbind.commands.ready import compile_pattern
from ompbind.errors import MeasurementError, PositionError
from ompbind.execution.output.line_prefix import decode_last_lines
from ompbind.execution.output.log_files import ERR, OUT
from ompbind.execution.readiness import OutputReader
from ompbind.text import clean_line, remove_escape_sequences

NAME_WIDTH = 20  # characters of the name of a metric at most: it is the title of a column

_TAIL_BYTES = 4096
_LAST_LINES, _LINE_WIDTH = 3, 200
"""Lines of the last words of a program in an error, and characters of each."""

_GROUP_HINT = "put the number in parentheses, as in 'tokens/s: ([0-9.,e+-]+)'"

_AROUND_NAME = " :=,;\"'\\^$.*+?"  # characters around the name of a metric: of texts and of patterns

_NUMBER = re.compile(r"(\d{1,3}(,\d{3})+|\d+)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
"""A number in a line, with or without commas between thousands."""


def read_pattern(text: str) -> re.Pattern[str]:
    """Compile the regular expression of a metric; raises PositionError if it is wrong or has no group."""
    pattern = compile_pattern(text)
    if not pattern.groups:
        raise PositionError("the pattern has no group", text=text, span=(0, len(text)), hint=_GROUP_HINT)
    return pattern


def make_metrics(patterns: Sequence[str], *, higher: bool = False) -> tuple[Metric, ...]:
    """Return the metrics of a session: one for each pattern; without patterns the wall time.

    Raises PositionError for a wrong pattern.
    """
    if not patterns:
        return (Metric(),)
    names: list[str] = []
    for text in patterns:
        pattern = read_pattern(text)
        named = next((name for name, number in pattern.groupindex.items() if number == 1), "")
        before, _, after = text.partition("(")
        # as in (?P<rate>...), else the text before the first group, else after it
        words = (clean_line(part).strip(_AROUND_NAME) for part in (before, after.partition(")")[2], text))
        name = (named or next(filter(None, words), text))[:NAME_WIDTH].strip()
        numbered = (f"{name[: NAME_WIDTH - 3]} {number}" for number in count(2))
        names.append(next(new for new in chain((name,), numbered) if new not in names))
    return tuple(
        Metric(name=name, pattern=text, higher=higher) for name, text in zip(names, patterns, strict=True)
    )


def read_values(metrics: Sequence[Metric], directory: str, ranks: Iterable[str]) -> tuple[float, ...]:
    """Return the value of each metric of a run, from the output files of its ranks.

    `ranks` are the starts of the names of these files: "0", or "load.0". Raises MeasurementError if a pattern
    matches in no line of a rank, or if what it matches cannot be compared.
    """
    rows = [_read_numbers(metrics, directory, rank) for rank in ranks]
    values = []
    for metric, numbers in zip(metrics, zip(*rows, strict=True), strict=True):
        value = sum(numbers) if metric.higher else max(numbers)
        if not 0 < value < math.inf:
            wrong = f"{value:g} cannot be compared: it must be above 0 and finite"
            raise MeasurementError(f"metric '{clean_line(metric.pattern)}': {wrong}")
        values.append(value)
    return tuple(values)


def _read_numbers(metrics: Sequence[Metric], directory: str, rank: str) -> list[float]:
    paths = [os.path.join(directory, f"{rank}.{end}") for end in (OUT, ERR)]
    matches = _find_last_matches([read_pattern(metric.pattern) for metric in metrics], paths)
    numbers = []
    for metric, match in zip(metrics, matches, strict=True):
        where = f"metric '{clean_line(metric.pattern)}'"
        if match is None:
            missing = f"{where}: no line of the output of rank {rank} matches"
            raise MeasurementError(f"{missing}{describe_last_lines(paths)}")
        try:
            numbers.append(_parse_number(match))
        except ValueError as error:
            wrong = f"{where}: '{clean_line(match[1][:NAME_WIDTH])}' in the output of rank {rank} {error}"
            raise MeasurementError(wrong) from None
    return numbers


def _find_last_matches(
    patterns: Sequence[re.Pattern[str]], paths: Iterable[str]
) -> list[re.Match[str] | None]:
    """Return the last match of each pattern whose first group has text, in the first file that has one."""
    found: list[re.Match[str] | None] = [None] * len(patterns)
    for path in paths:
        missing = [index for index, match in enumerate(found) if match is None]
        with suppress(FileNotFoundError), closing(OutputReader(path)) as reader:  # else it was not opened
            for block in reader.read_new() if missing else ():  # of many lines
                lines = block.split("\n")
                for index in missing:
                    for first in filter(None, map(patterns[index].search, reversed(lines))):
                        if matches := [match for match in patterns[index].finditer(first.string) if match[1]]:
                            found[index] = matches[-1]
                            break
    return found


def _parse_number(match: re.Match[str]) -> float:
    """Return the number in the first group; raises ValueError, which says what is wrong."""
    for number in _NUMBER.finditer(match.string):
        if _is_cut(number, match):
            raise ValueError(f"is only a part of the number {number[0]}")
    plain = _NUMBER.sub(lambda number: number[0].replace(",", ""), match[1].strip())
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", plain, re.ASCII):
        raise ValueError("is not a decimal number")
    return float(plain)


def _is_cut(number: re.Match[str], match: re.Match[str]) -> bool:
    """Return whether the first group has only a part of a number.

    A comma that the pattern matches outside of the group separates two numbers, as in CSV.
    """
    start, stop = match.span(1)
    if number.end() <= start or stop <= number.start():
        return False
    before, after = match.string[number.start() : start], match.string[stop : number.end()]
    has_first = before and not (before.endswith(",") and match.start() < start)
    has_last = after and not (after.startswith(",") and stop < match.end())
    return bool(has_first or has_last)


def describe_last_lines(paths: Sequence[str]) -> str:
    """Return the end of an error: the last lines of standard error, else of standard output."""
    for path in reversed(paths):
        try:
            with open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL_BYTES))
                data = file.read(_TAIL_BYTES).replace(b"\r", b"\n")
        except OSError:
            continue
        if shown := render_last_lines(decode_last_lines(data, whole=size <= _TAIL_BYTES)):
            return f"; {shown}"
    return "; it has written nothing"


def render_last_lines(lines: Sequence[str]) -> str:
    """Return the last lines of a program that are not empty, in one line; "" without any."""
    written = [clean_line(remove_escape_sequences(line))[:_LINE_WIDTH] for line in lines if line.strip()]
    return f"last lines: {' | '.join(written[-_LAST_LINES:])}" if written else ""
