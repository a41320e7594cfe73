"""The text of a claim: a run with its CPUs, as lines of "key value".

    ompbind-run 1
    run serve
    pid 4711
    held 0-7
    restarts 000000000000
    exit ---
    rank 0 0-3
    rank 1 4-7

The number of restarts changes while the run lives, and the exit code is set at its end. They always have the
same length, so that they are written in place: a reader finds a valid claim at any moment.
"""

import errno
import os
from collections.abc import Callable, Mapping
from typing import Any

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.model import MAX_CPUS
from ompbind.planning.other_runs import LiveRun, RunIdentity
from ompbind.planning.plan import Plan
from ompbind.text import clean_line, clean_name

HEAD = "ompbind-run 1"
"""The first line of every claim, with the version of the format."""

TEXT_LIMIT = 1 << 17
"""The longest text, in bytes: what a rank on every CPU of the largest machine needs."""

RANKS_LIMIT = MAX_CPUS
"""The most ranks that are listed: one for each CPU of the largest machine."""

RESTARTS, EXIT = "restarts ", "exit "
"""The starts of the lines with the number of restarts and with the exit code."""

_RESTART_DIGITS = 12
_NO_EXIT = "---"

_RANK_LINE = "\nrank "
_GROUPS_LIMIT = 1 << 12  # characters of the names of groups
_SET_LIMIT = 5 * MAX_CPUS // 2  # characters of a set: every second CPU of the largest machine


def _parse_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _parse_cpus(text: str) -> CpuSet:
    """Parse a set without strides: runs write none, and a short stride can name very many CPUs."""
    if ":" in text or len(text) > _SET_LIMIT:
        raise ValueError(f"{text!r} has a stride, or is too long")
    cpus = CpuSet.from_list(text)
    if cpus.bits.bit_length() > MAX_CPUS:
        raise ValueError("CPUs past the highest possible one")
    return cpus


_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "run": ("run_id", lambda text: clean_name(text or "?")),
    "pid": ("pid", _parse_number),
    "pid_space": ("pid_space", _parse_number),
    "started": ("started", _parse_number),
    "inside": ("parent_run_id", clean_name),
    "held": ("claimed", _parse_cpus),
    "avoided": ("avoided", _parse_cpus),
    "bind": ("bind", clean_name),
    "configuration": ("configuration", clean_name),
    "division": ("division", clean_name),
    "groups": ("groups", lambda text: clean_line(text[:_GROUPS_LIMIT])),
    "wanted": ("wanted", _parse_cpus),
    "session": ("is_session", lambda text: text == str(True)),
}
"""Key of a line → field of `LiveRun` and its parser; lines of ranks and of restarts are not included."""


def make_live_run(plan: Plan, identity: RunIdentity) -> LiveRun:
    """Return the run that is about to start, as other runs will see it."""
    if identity.placement_index is None:
        ranks = tuple((placement.rank, placement.cpuset) for placement in plan.placements)
    else:
        ranks = ((identity.rank, plan.placements[identity.placement_index].cpuset),)
    return make_waiting_run(identity).replace(
        ranks=ranks,
        claimed=plan.used | plan.reserved,
        avoided=plan.avoided,
        bind=str(plan.request.bind),
        configuration=plan.request.configuration.digest,
        division="" if identity.placement_index is None else make_division(plan),
        groups=", ".join(f"{part.request.group} {len(part.placements)}" for part in plan.groups),
    )


def make_division(plan: Plan) -> str:
    """Return a short hash of the CPUs and devices of all ranks of a plan; "" if it has not several ranks.

    It is also "" if a launcher has bound ranks outside of the plan: groups of ranks then have plans of their
    own. The hash of numbers is equal in all processes.
    """
    if len(plan.placements) <= 1 or plan.request.outside_ranks:
        return ""
    shares = tuple(
        (placement.cpus, tuple(placement.service_cpus), tuple(device.index for device in placement.devices))
        for placement in plan.placements
    )
    return f"{hash(shares) & 0xFFFF_FFFF_FFFF_FFFF:x}"


def make_waiting_run(identity: RunIdentity, wanted: CpuSet = EMPTY) -> LiveRun:
    """Return a run that claims no CPUs, as other runs will see it while it waits for the `wanted` CPUs."""
    return LiveRun(
        run_id=clean_name(identity.run_id),
        pid=identity.pid,
        uid=identity.uid,
        started=identity.started,
        ranks=(),
        claimed=EMPTY,
        parent_run_id=clean_name(identity.parent_run_id),
        pid_space=identity.pid_space,
        wanted=wanted,
    )


def make_text(run: LiveRun) -> str:
    """Return the text of a run.

    Lines for single ranks are left out if there are too many (thousands of ranks).
    """
    head = [HEAD, *(f"{key} {getattr(run, name)}" for key, (name, _) in _FIELDS.items())]
    head += [RESTARTS + render_restarts(run.restarts), EXIT + _NO_EXIT]
    ranks = [f"rank {rank} {cpus}" for rank, cpus in run.ranks]
    text = "\n".join([*head, *ranks, ""])
    fits = len(ranks) <= RANKS_LIMIT and len(text.encode()) <= TEXT_LIMIT
    return text if fits else "\n".join([*head, ""])


def render_restarts(count: int) -> str:
    """Return a number of restarts with all its digits, as it is written in place."""
    return f"{min(count, 10**_RESTART_DIGITS - 1):0{_RESTART_DIGITS}d}"


def find_field(text: str, start: str) -> int:
    """Return the offset, in bytes, of what follows RESTARTS or EXIT in the text of a claim."""
    return text.encode().index(f"\n{start}".encode()) + 1 + len(start)


def render_exit(code: int) -> str:
    """Return an exit code as it is written in place."""
    return f"{code:0{len(_NO_EXIT)}d}"


def parse_exit(text: str) -> int | None:
    """Return the exit code in the text of a claim; None before the end of the run, or without the line."""
    word = text.partition(f"\n{EXIT}")[2].partition("\n")[0]
    return int(word) if word.isdecimal() else None


def parse_text(text: str, uid: int, *, with_ranks: bool = True) -> LiveRun | None:
    """Return the run in a text that the user `uid` has written; None if the text is not a valid claim.

    It is not if a field is invalid, or if it has more than a machine can need. Planning needs no single
    ranks: without `with_ranks` their lines are not parsed.
    """
    if not with_ranks and text.endswith("\n"):
        text = text.partition(_RANK_LINE)[0].rstrip("\n") + "\n"
    head, *lines = text.split("\n")
    if head != HEAD or not text.endswith("\n") or text.count(_RANK_LINE) > RANKS_LIMIT:
        return None
    pairs = [line.split(" ", 1) for line in lines if " " in line]
    values = dict(pairs)
    try:
        fields = {name: parse(values[key]) for key, (name, parse) in _FIELDS.items() if key in values}
        parts = (value.partition(" ") for key, value in pairs if key == "rank")
        ranks = tuple((_parse_number(number), _parse_cpus(cpus)) for number, _, cpus in parts)
        restarts = _parse_number(values.get(RESTARTS.strip(), "0"))
        return LiveRun(uid=uid, ranks=ranks, restarts=restarts, **fields)
    except (TypeError, ValueError):  # a field is missing or invalid
        return None


PREFIX = "ompbind-"
"""The start of all names."""

CLAIM_SUFFIX, NEW_SUFFIX, TICKET_SUFFIX = ".run", ".new", ".wait"
"""The ends of names: of complete claims, of files that are being written, and of tickets."""

CLAIM_SUFFIXES = (CLAIM_SUFFIX, NEW_SUFFIX)

FILES_LIMIT = 10_000  # files with names of claims; more are an attack or a mistake
ENTRIES_LIMIT = 1 << 18  # files of any name in the directory


def list_claims(handle: int, suffixes: tuple[str, ...] = CLAIM_SUFFIXES) -> frozenset[str]:
    """Return the file names of the claims in an open directory; raises OSError (EOVERFLOW) for too many.

    The directory is read in pieces, up to these limits: other users may have filled it.
    """
    names: list[str] = []
    with os.scandir(handle) as entries:
        for number, entry in enumerate(entries):
            if entry.name.startswith(PREFIX) and entry.name.endswith(suffixes):
                names.append(entry.name)
            if len(names) > FILES_LIMIT:
                raise OSError(errno.EOVERFLOW, "too many claims")
            if number >= ENTRIES_LIMIT:
                raise OSError(errno.EOVERFLOW, "too many files")
    return frozenset(names)


def remove_claim(path: str, handle: int | None = None) -> None:
    """Remove the file of a claim, unless it is removed already, or belongs to another user."""
    try:
        os.unlink(path, dir_fd=handle)
    except OSError:
        pass
