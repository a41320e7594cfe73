"""Runs that live on a machine, and the text in which each of them tells the others which CPUs it has.

A run *holds* the CPUs of its ranks and those that it reserves. A rank of an engine's job tells of itself,
and holds what was planned for all ranks of the job on its machine: those that start later must still
find their CPUs free. What a text tells comes from anybody, so it is believed only as far as it makes sense.
"""

from collections.abc import Iterable, Iterator

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.record import Record

HEAD = "ompbind-run 1"
"""The first line of every text, with the version of what follows."""

TEXT_LIMIT = 1 << 18
"""Bytes of the longest text: a rank on every CPU of the largest machine takes half of it."""

NAME_LIMIT = 200
"""Characters of a run's name that others are told."""

_CPUS = 1 << 13
"""One past the highest CPU that is believed; Linux knows no more (NR_CPUS)."""

_NUMBER_DIGITS = 18


class LiveRun(Record):
    """One live run, or one live rank of an engine's job; `started` is in seconds of the epoch.

    `ranks` are (rank, its CPUs), `held` all CPUs that are not for others. `avoided` are those that it left
    to others when it was planned, `inside` is the name of the run that it was started in, "" if in none.
    `pid_space` is the kernel's number of the space (container) in which `pid` means something, 0 if unknown.
    `bind` is the binding mode of its ranks, "" where it is not told.
    """

    run_id: str
    pid: int
    uid: int
    started: int
    ranks: tuple[tuple[int, CpuSet], ...]
    held: CpuSet
    avoided: CpuSet = EMPTY
    inside: str = ""
    pid_space: int = 0
    bind: str = ""


class Claimant(Record):
    """Who is about to run; `inside` is the name of the run around it, "" where there is none.

    In an engine's job this is one rank: `rank` is its number, `slot` its place in the plan for all ranks
    of this machine. Otherwise `slot` is None: all ranks of the plan are its own.
    """

    run_id: str
    pid: int
    uid: int
    started: int
    inside: str = ""
    slot: int | None = None
    rank: int = 0
    pid_space: int = 0


def tidy(name: str) -> str:
    """Return a run's name as others are told it: short, on one line, with nothing that moves a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in name[:NAME_LIMIT])


def make_text(run: LiveRun) -> str:
    """Write a run for others to read, a key and its value on each line.

    Where that gets too long, which takes tens of thousands of ranks that share CPUs, no rank is told alone.
    """
    head = [
        HEAD,
        f"run {run.run_id}",
        f"pid {run.pid}",
        f"pid_space {run.pid_space}",
        f"started {run.started}",
        f"inside {run.inside}",
        f"held {run.held}",
        f"avoided {run.avoided}",
        f"bind {run.bind}",
    ]
    ranks = [f"rank {rank} {cpus}" for rank, cpus in run.ranks]
    text = "\n".join([*head, *ranks, ""])
    return text if len(text.encode()) <= TEXT_LIMIT else "\n".join([*head, ""])


def parse_text(text: str, uid: int) -> LiveRun | None:
    """Read what the user `uid` has written; None for anything that is not a run."""
    head, *lines = text.split("\n")
    if head != HEAD or not text.endswith("\n"):
        return None
    pairs = [line.split(" ", 1) for line in lines if " " in line]
    told = {key: value for key, value in pairs if key != "rank"}
    try:
        return LiveRun(
            run_id=tidy(told["run"] or "?"),
            pid=_number(told["pid"]),
            uid=uid,
            started=_number(told["started"]),
            ranks=tuple(_rank(value) for key, value in pairs if key == "rank"),
            held=_cpus(told["held"]),
            avoided=_cpus(told.get("avoided", "")),
            inside=tidy(told.get("inside", "")),
            pid_space=_number(told.get("pid_space", "0")),
            bind=tidy(told.get("bind", "")),
        )
    except (KeyError, ValueError):
        return None


def _rank(text: str) -> tuple[int, CpuSet]:
    number, _, cpus = text.partition(" ")
    return _number(number), _cpus(cpus)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _cpus(text: str) -> CpuSet:
    """Read a set as runs write it, which is without strides: some of these take long to read."""
    if ":" in text:
        raise ValueError("a stride")
    cpus = CpuSet.from_list(text)
    if cpus.bits.bit_length() > _CPUS:
        raise ValueError("CPUs past the highest possible one")
    return cpus


def find_others(runs: Iterable[LiveRun], me: Claimant) -> tuple[LiveRun, ...]:
    """Return the runs that are not this one's own: neither around it nor of its job."""
    runs = tuple(runs)
    around = set(_around(runs, me))
    mine = (run for run in runs if (run.run_id in around and run.uid == me.uid) or _is_kin(run, me))
    known = set(map(id, mine))
    return tuple(run for run in runs if id(run) not in known)


def find_kin(runs: Iterable[LiveRun], me: Claimant) -> tuple[LiveRun, ...]:
    """Return the other ranks of the same engine's job."""
    return tuple(run for run in runs if _is_kin(run, me))


def _is_kin(run: LiveRun, me: Claimant) -> bool:
    return me.slot is not None and (run.run_id, run.uid) == (tidy(me.run_id), me.uid)


def _around(runs: tuple[LiveRun, ...], me: Claimant) -> Iterator[str]:
    """Yield the name of the run around, of the run around that one, and so on, all of one user."""
    seen, new = set[str](), {tidy(me.inside)} - {""}
    while new:
        yield from new
        seen |= new
        new = {run.inside for run in runs if run.run_id in new and run.uid == me.uid} - seen - {""}
