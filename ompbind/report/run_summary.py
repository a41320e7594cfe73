"""The summary of a finished run for people: which ranks failed and why, and what every rank used.

While a run of several ranks goes on, each failure is reported at once in one line. The summary only adds to
that: the last lines that failed ranks wrote, and hints.
"""

from collections.abc import Iterator, Sequence
from signal import Signals

from ompbind.cpuset import count, join_words, named, union
from ompbind.execution.outcome import Outcome, RankExit, exit_code, render_exit, render_exit_status
from ompbind.execution.signals import signal_name
from ompbind.planning.plan import Plan, name_ranks
from ompbind.report.text import (
    WIDTH,
    Column,
    clip,
    make_visible,
    render_bytes,
    render_paragraph,
    render_table,
    wrap_quoted,
)

LAST_LINES = 10  # lines of a rank's last words in the summary

LINE_LIMIT = 1000  # characters of a line of last words in the summary

ORDINARY = (Signals.SIGINT, Signals.SIGTERM, Signals.SIGHUP, Signals.SIGPIPE)
"""Signals that are not reported when they kill the only rank, as in shells and `timeout`."""

OUT_OF_MEMORY = (
    "memory ran out, and the kernel killed a process of this cgroup: raise the memory limit"
    " (of the container, of the job), or start fewer ranks"
)
_HINTS = {
    127: "a command (see PATH) or a shared library (see LD_LIBRARY_PATH) was not found, or a script has"
         " Windows line ends",
    128 + Signals.SIGBUS: "shared memory or a mapped file was not available: check whether /dev/shm is full"
         " ('df /dev/shm', --shm-size of containers) or a file was truncated",
    128 + Signals.SIGSEGV: "with OpenMP often a stack overflow: try --env OMP_STACKSIZE=64M for its threads"
         " and 'ulimit -s unlimited' for the initial thread",
    128 + Signals.SIGKILL: "not sent by ompbind; possible senders: a user ('kill -9'), a batch system if the"
         " job reached a limit, the kernel if memory ran out (see 'dmesg')",
}  # fmt: skip
"""Hints by status; docs/first-aid.md has more causes."""


def find_hint(rank_exit: RankExit, outcome: Outcome) -> str:
    """Return the probable cause of a rank's failure and what to check; "" if unknown.

    A rank that succeeded, or that ompbind stopped, has no hint. Without a hint for its status, it is that of
    the out-of-memory killer, if this was active: a program often fails a moment after one of its workers.
    """
    if not rank_exit.failed:
        return ""
    if any("address already in use" in line.lower() for line in rank_exit.last_lines):
        return "ranks with one port: give each its own, as with --env PORT={rank+8000}"
    status, oom = rank_exit.status, OUT_OF_MEMORY if outcome.oom_kills > 0 else ""
    hint = (status == 128 + Signals.SIGKILL and oom) or _HINTS.get(status, oom)
    if hint and rank_exit.signal is None and status > 128 and status in _HINTS:
        return f"if a shell exited with code {status}, {signal_name(status - 128)} killed its command: {hint}"
    return hint


def render_failures(outcome: Outcome, *, stderr_shown: bool = True, width: int = WIDTH) -> str:
    """Render the ranks that failed by themselves, as far as that adds to earlier messages; else return "".

    With `stderr_shown` the user has seen the standard error of the ranks. The last words of a single rank are
    then left out: the run prints no more than the command alone would.
    """
    # the failure of a rank was reported at once if others had not started yet
    is_single = len(outcome.exits) == 1 and not outcome.start_interrupted_by
    with_words = not (is_single and stderr_shown)
    groups = [
        (exits, hint)
        for exits, hint in _group_by_status(outcome)
        if hint
        or (is_single and exits[0].signal is not None and exits[0].signal not in ORDINARY)
        or (with_words and _find_words(exits) is not None)
    ]
    lines = [
        line
        for exits, hint in groups
        for line in _render_group(exits, hint, with_words=with_words, width=width)
    ]
    stopped = [rank_exit.rank for rank_exit in outcome.exits if rank_exit.stopped]
    if lines and stopped:
        lines.append(render_paragraph("ompbind", f"stopped: {named('rank', stopped)}", width))
    return "\n".join(lines)


def _group_by_status(outcome: Outcome) -> Iterator[tuple[list[RankExit], str]]:
    """Yield ranks that failed by themselves, grouped by exit code and signal, each group with its hint.

    A hint that an earlier group has is not repeated: it is "" then.
    """
    failed = [rank_exit for rank_exit in outcome.exits if rank_exit.failed]
    hints = {""}
    for status in dict.fromkeys((rank_exit.code, rank_exit.signal) for rank_exit in failed):
        exits = [rank_exit for rank_exit in failed if (rank_exit.code, rank_exit.signal) == status]
        hint = find_hint(exits[0], outcome)
        yield exits, "" if hint in hints else hint
        hints.add(hint)


def _find_words(exits: Sequence[RankExit]) -> RankExit | None:
    return next((rank_exit for rank_exit in exits if any(map(make_visible, rank_exit.last_lines))), None)


def _render_group(exits: Sequence[RankExit], hint: str, *, with_words: bool, width: int) -> Iterator[str]:
    """Yield the lines on ranks with equal status: the status, the last words of one rank, the hint."""
    first, writer = exits[0], _find_words(exits) if with_words else None
    if len(exits) == 1:
        text = render_exit(first) + ("; its last lines:" if writer else "")
    else:
        ranks = named("rank", (rank_exit.rank for rank_exit in exits))
        text = f"{ranks} {render_exit_status(first, several=True)}"
        text += f"; last lines of rank {writer.rank}:" if writer else ""
    yield render_paragraph("ompbind", text, width)
    if writer:
        shown = "\n".join(map(make_visible, writer.last_lines)).strip("\n")  # as on a terminal, no colours
        yield from (wrap_quoted(clip(line, LINE_LIMIT), width) for line in shown.split("\n")[-LAST_LINES:])
    if hint:
        yield render_paragraph("  hint", hint, width)


def render_throttling(outcome: Outcome, plan: Plan, width: int = WIDTH) -> str:
    """Render how the CPU quota throttled the run; "" if it did not."""
    throttling, quota = outcome.throttling, plan.machine.quota
    if quota is None or throttling is None or not throttling.throttled_periods:
        return ""
    text = f"the CPU quota of {count(quota, 'CPU')} throttled this cgroup in {throttling}"
    fewer = "use fewer ranks, threads or CPUs, or " if len(plan.used) > 1 else ""
    return render_paragraph("ompbind", f"{text}: {fewer}raise the quota", width)


_LEAST_S, _LEAST_BUSY, _LEAST_DELAY, _LEAST_RATE, _CLEAR_RATE = 2.0, 0.9, 0.2, 50, 225
"""When threads competed: seconds, CPU time and the initial thread's run delay as parts of what the CPUs had,
involuntary switches per second and CPU. Threads that share a CPU interrupt each other 80 to 350 times. Other
programs can do so 200 times to one thread, without run delay; an initial thread that sleeps has none either.
"""


def render_contention(outcome: Outcome, plan: Plan, width: int = WIDTH) -> str:
    """Render which ranks had more busy threads than CPUs; "" for none, and after --verify: it checks that."""
    found, requests = [], plan.rank_requests
    for each in outcome.exits if outcome.verified is None else ():
        usage, placement, request = each.usage, plan.placements[each.rank], requests[each.rank]
        waited = (each.delay_s or 0.0) >= _LEAST_DELAY * usage.wall_s
        available_s = usage.wall_s * len(placement.cpuset)
        is_busy = usage.user_s + usage.system_s >= _LEAST_BUSY * available_s
        is_forced = usage.involuntary_switches >= (_LEAST_RATE if waited else _CLEAR_RATE) * available_s
        is_own = request.threads is None and request.processes_per_rank == 1
        if usage.wall_s >= _LEAST_S and is_busy and is_forced and is_own:
            found.append(placement)
    if not found:
        return ""
    text = f"threads of {name_ranks(found)} competed for {named('CPU', union(p.cpuset for p in found))}"
    text += ": -c gives each rank more cores, or let the program start fewer threads"
    return render_paragraph("ompbind", text, width)


def render_held(outcome: Outcome, width: int = WIDTH) -> str:
    """Render which programs have asked for CPUs outside of their rank in a run with --hold; "" if none."""
    found = outcome.held.outside if outcome.held else ()
    ranks: dict[str, list[int]] = {}
    for rank, program, _ in found:
        ranks.setdefault(program, []).append(rank)
    if not found:
        return ""
    who = join_words([f"{program} of {named('rank', numbers)}" for program, numbers in ranks.items()])
    calls = sum(number for _, _, number in found)
    return render_paragraph("ompbind", f"--hold: {count(calls, 'call')} for other CPUs, by {who}", width)


def render_usage_table(outcome: Outcome, plan: Plan, width: int = WIDTH) -> str:
    """Render a table of what every rank used; several ranks have a last row with sums.

    Of a rank that was restarted, it shows the last attempt, and a column counts the attempts.
    Times are in seconds. `%CPU` is the CPU time in percent of the time that all CPUs of the rank had.
    `memory` is the peak of a single process of the rank. `waits` counts voluntary context switches (a thread
    had nothing to do), `forced` involuntary ones (another thread got the CPU). "-" is an unknown value.
    """
    exits = sorted(outcome.exits, key=lambda rank_exit: rank_exit.rank)
    used = [rank_exit.usage for rank_exit in exits]
    cpus = {placement.rank: len(placement.cpuset) for placement in plan.placements}
    attempts = [each.attempt for each in exits]
    status = [str(each.code) if each.signal is None else signal_name(each.signal) for each in exits]
    wall_s, cpu_s = [usage.wall_s for usage in used], [usage.user_s + usage.system_s for usage in used]
    user_s, system_s = [usage.user_s for usage in used], [usage.system_s for usage in used]
    available_s = [each.usage.wall_s * cpus.get(each.rank, 0) for each in exits]
    memory = ["-" if usage.max_rss_bytes is None else render_bytes(usage.max_rss_bytes) for usage in used]
    waits = [usage.voluntary_switches for usage in used]
    forced = [usage.involuntary_switches for usage in used]
    rows = (
        # the title, a cell of each rank, and the cell of the last row: memory peaks have no sum
        ("rank", [str(each.rank) for each in exits], "all"),
        ("group", [each.label for each in exits], ""),
        ("pid", [str(each.pid) for each in exits], ""),
        ("attempts", list(map(str, attempts)), str(sum(attempts))),
        ("status", status, str(exit_code(outcome))),
        ("wall s", list(map(_seconds, wall_s)), _seconds(max(wall_s, default=0.0))),
        ("user s", list(map(_seconds, user_s)), _seconds(sum(user_s))),
        ("sys s", list(map(_seconds, system_s)), _seconds(sum(system_s))),
        ("%CPU", list(map(_share, cpu_s, available_s)), _share(sum(cpu_s), sum(available_s))),
        ("memory", memory, ""),
        ("waits", list(map(render_short, waits)), render_short(sum(waits))),
        ("forced", list(map(render_short, forced)), render_short(sum(forced))),
    )
    shown = {"attempts": max(attempts, default=1) > 1, "group": any(each.label for each in exits)}
    columns = []
    for title, cells, last in rows:
        if shown.get(title, True):
            cells = [*cells, last] if len(exits) > 1 else cells
            columns.append(Column(title=title, cells=cells, right=title not in ("group", "status")))
    return render_table(columns, width)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds < 999.995 else render_short(seconds)


def _share(used_s: float, available_s: float) -> str:
    return render_short(100 * used_s / available_s, "%") if available_s > 0 else "-"


def render_short(number: float, unit: str = "") -> str:
    """Return a number in at most five characters: "99999", "123k", "4.5M"."""
    digits = 5 - len(unit)
    if number < 10**digits - 0.5:
        return f"{number:.0f}{unit}"
    for prefix in "kMGT":
        number /= 1000
        if number < 999.5:
            return f"{number:.0f}{prefix}{unit}" if number >= 9.95 else f"{number:.1f}{prefix}{unit}"
    return f">1P{unit}"
