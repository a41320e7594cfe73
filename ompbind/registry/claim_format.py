"""The text in which a run tells the others which CPUs it holds, a key and its value on each line.

Any user may have written such a text, so it is believed only as far as it makes sense.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ompbind.cpuset import CpuSet
from ompbind.machine.model import CPUS
from ompbind.planning.occupancy import Claimant, LiveRun
from ompbind.planning.plan import Plan
from ompbind.text import tidy

HEAD = "ompbind-run 1"
"""The first line of every text, with the version of what follows."""

TEXT_LIMIT = 1 << 18
"""Bytes of the longest text: a rank on every CPU of the largest machine takes half of it."""


def make_live_run(plan: Plan, me: Claimant) -> LiveRun:
    """Return what others are to know of the run that is about to start."""
    if me.slot is None:
        ranks = tuple((one.rank, one.cpuset) for one in plan.placements)
    else:
        ranks = ((me.rank, plan.placements[me.slot].cpuset),)
    return LiveRun(
        run_id=tidy(me.run_id),
        pid=me.pid,
        uid=me.uid,
        started=me.started,
        ranks=ranks,
        held=plan.used | plan.reserved,
        avoided=plan.avoided,
        inside=tidy(me.inside),
        pid_space=me.pid_space,
        bind=str(plan.request.bind),
    )


def make_text(run: LiveRun) -> str:
    """Write a run for others to read, a key and its value on each line.

    Where that gets too long, which takes tens of thousands of ranks that share CPUs, no rank is told alone.
    """
    head = [HEAD, *(f"{key} {getattr(run, name)}" for key, (name, _) in _FIELDS.items())]
    ranks = [f"rank {rank} {cpus}" for rank, cpus in run.ranks]
    text = "\n".join([*head, *ranks, ""])
    return text if len(text.encode()) <= TEXT_LIMIT else "\n".join([*head, ""])


def parse_text(text: str, uid: int) -> LiveRun | None:
    """Read what the user `uid` has written; None for anything that is not a run."""
    head, *lines = text.split("\n")
    if head != HEAD or not text.endswith("\n"):
        return None
    pairs = [line.split(" ", 1) for line in lines if " " in line]
    told = dict(pairs)
    try:
        fields = {name: parse(told[key]) for key, (name, parse) in _FIELDS.items() if key in told}
        ranks = tuple(_rank(value) for key, value in pairs if key == "rank")
        return LiveRun(uid=uid, ranks=ranks, **fields)
    except (TypeError, ValueError):  # a field is missing, or makes no sense
        return None


def _rank(text: str) -> tuple[int, CpuSet]:
    number, _, cpus = text.partition(" ")
    return _number(number), _cpus(cpus)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _cpus(text: str) -> CpuSet:
    """Read a set as runs write it, which is without strides: some of these take long to read."""
    if ":" in text:
        raise ValueError("a stride")
    cpus = CpuSet.from_list(text)
    if cpus.bits.bit_length() > CPUS:
        raise ValueError("CPUs past the highest possible one")
    return cpus


_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "run": ("run_id", lambda text: tidy(text or "?")),
    "pid": ("pid", _number),
    "pid_space": ("pid_space", _number),
    "started": ("started", _number),
    "inside": ("inside", tidy),
    "held": ("held", _cpus),
    "avoided": ("avoided", _cpus),
    "bind": ("bind", tidy),
}
"""The keys of lines other than those of ranks: the field of a run that each is, and how it is read."""
