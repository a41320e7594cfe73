"""What a plan adds to the picture of a machine: whose every CPU and core is, as a sign, a mark and words.

A *sign* is a few characters: the rank, `0/1` for two of them, `0-3` for four, or a letter for a set of ranks
that would be longer; `R` is reserved, `.` idle, `*` set apart, `o` left to other runs, `-` not allowed. A
*mark* says how it looks.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import ascii_lowercase

from ompbind.cpuset import EMPTY, CpuSet, count, named, run_text, union
from ompbind.machine.model import Level
from ompbind.planning.plan import Placement, Plan
from ompbind.record import Record
from ompbind.report.plan import render_heading
from ompbind.report.text import render_cpus

COLOURS = 7
"""Colours that ranks take in turn; a prime, so that rows of 2, 4 or 8 ranks differ from each other."""

KEYS = 16  # ranks of which a legend tells one by one; of more it tells only how to read them
_SIGN = 11  # characters of the longest sign: what two neighbouring ranks take at most
_LIST = 48  # characters of the longest list of CPUs in a legend; of longer ones only the length is told


class Stamp(Record):
    """What stands for a CPU or a core in a picture; `words` say it in a tooltip, "" where others do."""

    sign: str
    mark: str
    words: str = ""


NO_STAMP = Stamp(sign="", mark="")  # what stands for a CPU of which nothing is to be told


class Overlay(Record):
    """What a picture shows beyond the machine: lines of text, stamps by CPU, and keys of its legend.

    Of the notes of a plan `notes` are only warnings: what is idle or crosses a border, a picture shows.
    `cores` has the stamp of its core for every CPU. `ranks` are keys of single ranks, or of the colours where
    the ranks are many; `cpu_keys` and `core_keys` tell what else occurs in the stamps of CPUs and of cores.
    """

    head: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cpus: Mapping[int, Stamp] = {}
    cores: Mapping[int, Stamp] = {}
    ranks: tuple[Stamp, ...] = ()
    cpu_keys: tuple[Stamp, ...] = ()
    core_keys: tuple[Stamp, ...] = ()


NOTHING = Overlay()  # the overlay of a machine that is shown as it is
_Owners = Mapping[int, CpuSet]  # the ranks, as a set of numbers, that every CPU is given to
_Signs = Mapping[CpuSet, str]  # the sign of every set of ranks


def make_overlay(plan: Plan) -> Overlay:
    """Return what is to be seen of a plan; every online CPU and core gets one stamp."""
    owners = _owners((one.cpuset, one.rank) for one in plan.placements)
    cores = [core.cpus & plan.machine.online for core in plan.machine.at(Level.CORE)]
    hosted = [union(owners.get(cpu, EMPTY) for cpu in core) for core in cores]
    signs = _signs([*hosted, *owners.values()])
    stamps = _rank_stamps(owners, signs) | _other_stamps(plan, owners)
    by_core = list(_core_stamps(plan, list(zip(cores, hosted, strict=True)), signs, stamps))
    return Overlay(
        head=tuple(render_heading(plan).split("\n")),
        notes=tuple(f"warning: {note.text}" for note in plan.notes if note.warning),
        cpus=stamps,
        cores={cpu: stamp for core, stamp in zip(cores, by_core, strict=True) for cpu in core},
        ranks=tuple(_rank_keys(plan.placements)),
        cpu_keys=tuple(_keys(plan, signs, stamps.values())),
        core_keys=tuple(_keys(plan, signs, by_core)),
    )


def rank_mark(rank: int) -> str:
    """Return the mark of a rank, of which there are as many as colours."""
    return f"rank-{rank % COLOURS}"


def _owners(given: Iterable[tuple[CpuSet, int]]) -> dict[int, CpuSet]:
    """Map every CPU of some sets to the ranks that have it; equal sets are walked once."""
    together: dict[CpuSet, int] = {}
    for cpus, rank in given:
        together[cpus] = together.get(cpus, 0) | 1 << rank
    bits: dict[int, int] = {}
    for cpus, ranks in together.items():
        for cpu in cpus:
            bits[cpu] = bits.get(cpu, 0) | ranks
    made = {ranks: CpuSet.from_bits(ranks) for ranks in bits.values()}
    return {cpu: made[ranks] for cpu, ranks in bits.items()}


def _signs(sets: Iterable[CpuSet]) -> dict[CpuSet, str]:
    """Give every set of ranks its sign: its numbers, else the next free of a, b, ... z, a1 ..."""
    signs: dict[CpuSet, str] = {}
    letters = (f"{letter}{number or ''}" for number in itertools.count() for letter in ascii_lowercase)
    for ranks in sets:
        if ranks and ranks not in signs:
            text = _numbers(ranks)
            signs[ranks] = text if len(text) <= _SIGN else next(letters)
    return signs


def _numbers(ranks: CpuSet) -> str:
    """Write ranks with slashes, three and more neighbours as a range: "0/1", "0-3/8"."""
    return "/".join(
        run_text(start, length) if length != 2 else f"{start}/{start + 1}" for start, length in ranks.runs()
    )


def _rank_stamps(owners: _Owners, signs: _Signs) -> dict[int, Stamp]:
    made = {ranks: _stamp(ranks, signs, named("rank", ranks)) for ranks in set(owners.values())}
    return {cpu: made[ranks] for cpu, ranks in owners.items()}


def _stamp(ranks: CpuSet, signs: _Signs, words: str) -> Stamp:
    mark = rank_mark(ranks.first) if len(ranks) == 1 else "shared"
    return Stamp(sign=signs[ranks], mark=mark, words=words)


def _other_stamps(plan: Plan, owners: _Owners) -> dict[int, Stamp]:
    machine = plan.machine
    kept = _owners((one.reserved, one.rank) for one in plan.placements)
    stamps = {}
    for cpu in machine.online - CpuSet(owners):
        if cpu in plan.reserved:
            ranks = kept.get(cpu, EMPTY)
            stamps[cpu] = _RESERVED
            if 0 < len(ranks) < len(plan.placements):  # where it is for all, that says nothing
                stamps[cpu] = _RESERVED.replace(words=f"reserved for {named('rank', ranks)}")
        elif cpu not in machine.allowed:
            stamps[cpu] = _NOT_ALLOWED
        elif cpu in plan.avoided:
            stamps[cpu] = _TAKEN
        else:
            stamps[cpu] = _APART if cpu in machine.excluded_by_default else _IDLE
    return stamps


_RESERVED = Stamp(sign="R", mark="reserved", words="reserved")
_IDLE = Stamp(sign=".", mark="idle", words="idle")
_APART = Stamp(sign="*", mark="apart")
_TAKEN = Stamp(sign="o", mark="taken")
_NOT_ALLOWED = Stamp(sign="-", mark="not-allowed")

_TELLING = (_RESERVED.mark, _IDLE.mark, _APART.mark, _TAKEN.mark, _NOT_ALLOWED.mark)
"""The marks of CPUs without a rank; the first one that a core has tells most of it."""

_WORDS = {
    "shared": "shared by these ranks",
    "reserved": "reserved",
    "idle": "idle",
    "apart": "set apart",
    "taken": "left to other runs",
    "not-allowed": "not allowed",
}


def _core_stamps(
    plan: Plan, cores: Sequence[tuple[CpuSet, CpuSet]], signs: _Signs, stamps: Mapping[int, Stamp]
) -> Iterator[Stamp]:
    """Yield the stamp of every core, given with the ranks that have CPUs of it."""
    alone = {ranks.first for _, ranks in cores if len(ranks) == 1}
    told = {one.rank: _tell(one) for one in plan.placements if one.rank in alone}
    for cpus, ranks in cores:
        if ranks:
            words = told[ranks.first] if len(ranks) == 1 else named("rank", ranks)
            yield _stamp(ranks, signs, words)
        else:
            best = min((stamps[cpu] for cpu in cpus), key=lambda one: _TELLING.index(one.mark))
            yield best.replace(words=best.words or _WORDS[best.mark])


def _tell(one: Placement) -> str:
    """Say what a rank has: "rank 0: CPUs 0-3, 4 threads"."""
    cpus = named("CPU", one.cpus) if len(render_cpus(one.cpuset)) <= _LIST else count(len(one.cpus), "CPU")
    return f"rank {one.rank}: {cpus}, {count(one.threads, 'thread')}"


def _rank_keys(placements: tuple[Placement, ...]) -> Iterator[Stamp]:
    """Yield a key for each rank, or for each colour where there are many ranks."""
    if len(placements) <= KEYS:
        for one in placements:
            yield Stamp(sign=str(one.rank), mark=rank_mark(one.rank), words=_tell(one))
        return
    for first in range(COLOURS):
        ranks = CpuSet(range(first, len(placements), COLOURS))
        yield Stamp(sign="", mark=rank_mark(first), words=f"ranks {render_cpus(ranks)}")


def _keys(plan: Plan, signs: _Signs, stamps: Iterable[Stamp]) -> Iterator[Stamp]:
    """Yield the keys of what occurs beside single ranks: shared, letters, and what no rank has."""
    shown = {one.sign: one for one in stamps}
    yield from _shared_keys({ranks: sign for ranks, sign in signs.items() if sign in shown})
    occurring = {one.mark: one for one in shown.values()}
    reasons = ", ".join(name for name, _ in plan.machine.exclusion_reasons)
    for mark in _TELLING:
        if mark in occurring:
            words = f"{_WORDS[mark]} ({reasons})" if mark == _APART.mark else _WORDS[mark]
            yield occurring[mark].replace(words=words)


def _shared_keys(signs: _Signs) -> Iterator[Stamp]:
    """Yield one key for all signs that are numbers of several ranks, and one for each of a few letters."""
    several = {sign: ranks for ranks, sign in signs.items() if len(ranks) > 1}
    numbers = [sign for sign, ranks in several.items() if sign == _numbers(ranks)]
    letters = [sign for sign in several if sign not in numbers]
    told = [(sign, _WORDS["shared"]) for sign in numbers[:1]]
    if len(letters) > KEYS:
        told.append((f"{letters[0]} to {letters[-1]}", "sets of many ranks; --format json tells them"))
    else:
        told += [(sign, named("rank", several[sign])) for sign in letters]
    yield from (Stamp(sign=sign, mark="shared", words=words) for sign, words in told)
