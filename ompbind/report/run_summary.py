"""How a run ended, for people: what failed and why, and a table of what every rank used.

While a run is on, one line is said at once of every rank that fails, unless it is the only one. What is said
here, after the end, only adds to that: the last words of ranks, and hints.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from signal import Signals

from ompbind.cpuset import named
from ompbind.execution.failure_hints import find_hint
from ompbind.execution.outcome import Exited, Outcome, describe, describe_end, exit_code, signal_name
from ompbind.planning.plan import Plan
from ompbind.report.text import WIDTH, Column, clip, render_bytes, render_paragraph, render_table
from ompbind.text import printable

LAST_LINES = 10
"""Lines of a rank's last words that people are shown, and the groups of ranks that are told one by one."""

LINE_LIMIT = 1000  # characters of one line of last words that people are shown

ORDINARY = (Signals.SIGINT, Signals.SIGTERM, Signals.SIGHUP, Signals.SIGPIPE)
"""Signals of which nothing is said where one ends the only rank: shells and `timeout` keep silent, too."""


def render_failures(outcome: Outcome, *, seen: bool = True) -> str:
    """Render what there is to add on ranks that failed by themselves, "" when there is nothing.

    `seen` tells that what ranks wrote on standard error was shown already, which is why the last words of
    a single rank are left out: then a run says no more than the command alone would.
    """
    alone = len(outcome.exits) == 1
    words = not (alone and seen)
    told = [(ends, hint) for ends, hint in _groups(outcome) if hint or _adds(ends, alone=alone, words=words)]
    lines = [line for ends, hint in told[:LAST_LINES] for line in _entry(ends, hint, words=words)]
    if len(told) > LAST_LINES:
        rest = (end.rank for ends, _ in told[LAST_LINES:] for end in ends)
        lines.append(render_paragraph("ompbind", f"{named('rank', rest)} failed in other ways"))
    stopped = [one.rank for one in outcome.exits if one.stopped]
    if lines and stopped:
        lines.append(render_paragraph("ompbind", f"stopped: {named('rank', stopped)}"))
    return "\n".join(lines)


def _groups(outcome: Outcome) -> Iterator[tuple[list[Exited], str]]:
    """Yield ranks that failed by themselves, by how they ended, and a hint, "" where it was given already."""
    failed = [one for one in outcome.exits if one.failed]
    hints = {""}
    for end in dict.fromkeys((one.code, one.signal) for one in failed):
        ends = [one for one in failed if (one.code, one.signal) == end]
        hint = find_hint(ends[0], outcome)
        yield ends, "" if hint in hints else hint
        hints.add(hint)


def _adds(ends: Sequence[Exited], *, alone: bool, words: bool) -> bool:
    """Tell whether something is worth saying that was not said when the ranks ended."""
    killer = ends[0].signal
    strange = alone and killer is not None and killer not in ORDINARY
    return strange or (words and _speaker(ends) is not None)


def _speaker(ends: Sequence[Exited]) -> Exited | None:
    return next((one for one in ends if any(map(_plain, one.last_words))), None)


def _entry(ends: Sequence[Exited], hint: str, *, words: bool) -> Iterator[str]:
    first, speaker = ends[0], _speaker(ends) if words else None
    if len(ends) == 1:
        text = describe(first) + (", and wrote last:" if speaker else "")
    else:
        text = f"{named('rank', (one.rank for one in ends))} {describe_end(first, several=True)}"
        text += f"; rank {speaker.rank} wrote last:" if speaker else ""
    yield render_paragraph("ompbind", text)
    if speaker:
        yield from _shown(speaker.last_words)
    if hint:
        yield render_paragraph("  hint", hint)


_STYLING = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[ -/]*[0-~])")
"""Escape sequences: colours and other control sequences, titles of windows, and the short ones."""


def _shown(words: Sequence[str]) -> Iterator[str]:
    """Yield the last lines as a terminal would show them, without colours; long ones go on further lines."""
    text = "\n".join(map(_plain, words)).strip("\n")
    for line in text.split("\n")[-LAST_LINES:]:
        yield textwrap.fill(
            clip(line, LINE_LIMIT),
            WIDTH,
            initial_indent="    ",
            subsequent_indent="        ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def _plain(line: str) -> str:
    """Return what a terminal shows of a line: what comes after the last return to its beginning."""
    overwritten = [part for part in _STYLING.sub("", line).split("\r") if part.strip()]
    text = overwritten[-1].expandtabs() if overwritten else ""
    return printable(text).rstrip()


def render_accounts(outcome: Outcome, plan: Plan) -> str:
    """Render a table of what every rank used, with sums when there are several.

    Times are in seconds, CPU is the CPU time in percent of all that the rank's CPUs had, memory is the most
    that one process had at once; `waits` are switches to another thread because there was nothing to do,
    `forced` those because the CPU was taken away. "-" is what is not known.
    """
    exits = sorted(outcome.exits, key=lambda one: one.rank)
    cpus = {one.rank: len(one.cpus) for one in plan.placements}
    rows = [_row(one, cpus.get(one.rank, 0)) for one in exits]
    if len(exits) > 1:
        rows.append(_sums(outcome, cpus))
    columns = (
        Column(title=title, cells=[row[i] for row in rows], right=title != "status")
        for i, title in enumerate(_TITLES)
    )
    return render_table(list(columns))


_TITLES = ("rank", "pid", "status", "wall s", "user s", "sys s", "CPU", "memory", "waits", "forced")


def _row(one: Exited, cpus: int) -> tuple[str, ...]:
    used, memory = one.usage, one.usage.max_rss_bytes
    return (
        str(one.rank),
        str(one.pid),
        str(one.code) if one.signal is None else signal_name(one.signal),
        *map(_seconds, (used.wall_s, used.user_s, used.system_s)),
        _share(used.user_s + used.system_s, used.wall_s * cpus),
        "-" if memory is None else render_bytes(memory),
        _short(used.voluntary_switches),
        _short(used.involuntary_switches),
    )


def _sums(outcome: Outcome, cpus: dict[int, int]) -> tuple[str, ...]:
    """Return the last row: the longest time, the sums of what adds up, and no sum of peaks."""
    used = [one.usage for one in outcome.exits]
    busy_s = sum(one.user_s + one.system_s for one in used)
    had_s = sum(one.usage.wall_s * cpus.get(one.rank, 0) for one in outcome.exits)
    times = (max(x.wall_s for x in used), sum(x.user_s for x in used), sum(x.system_s for x in used))
    return (
        "all",
        "",
        str(exit_code(outcome)),
        *map(_seconds, times),
        _share(busy_s, had_s),
        "",
        _short(sum(one.voluntary_switches for one in used)),
        _short(sum(one.involuntary_switches for one in used)),
    )


def _seconds(seconds: float) -> str:
    """Write seconds in at most six characters, hours from a million seconds on."""
    if seconds < 999.995:
        return f"{seconds:.2f}"
    if seconds < 999_999.5:
        return f"{seconds:.0f}"
    hours = seconds / 3600
    return f"{hours:.0f}h" if hours < 99_999.5 else f"{hours:.0e}h"


def _share(used_s: float, had_s: float) -> str:
    """Write in percent, in at most five characters, how much of the time that was there was used."""
    if had_s <= 0:
        return "-"
    ratio = used_s / had_s
    return f"{ratio:.0%}" if ratio < 99.995 else _short(ratio, "x")


def _short(number: float, unit: str = "") -> str:
    """Write a number in at most five characters: "99999", "123k", "4.5M"."""
    room = 5 - len(unit)
    if number < 10**room - 0.5:
        return f"{number:.0f}{unit}"
    for sign in "kMGT":
        number /= 1000
        if number < 999.5:
            return f"{number:.0f}{sign}{unit}" if number >= 9.95 else f"{number:.1f}{sign}{unit}"
    return f">1P{unit}"
