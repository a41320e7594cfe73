"""What a plan adds to the picture of a machine: which ranks use every CPU and core, or why none does.

Every CPU and every core gets an `Annotation`: a short symbol, a mark that selects its colours, and words for
tooltips. They are made in three steps: ranks by CPU → a symbol for each set of ranks → annotations.

    symbol   meaning                            symbol   meaning
    0        rank 0                             R        reserved
    0/1      ranks 0 and 1                      .        idle
    0-3      ranks 0 to 3                       *        excluded by default (isolated, nohz_full)
    a, b1    a set of ranks with longer text    o        used by other runs
    0s       for service threads of rank 0      -        not allowed
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import ascii_lowercase

from ompbind.cpuset import EMPTY, CpuSet, count, named, render_range, union
from ompbind.machine.model import Level
from ompbind.planning.plan import Placement, Plan
from ompbind.record import Record
from ompbind.report.machine_text import render_device_names
from ompbind.report.plan import make_plan_heading
from ompbind.report.text import render_cpus

COLOURS = 7
"""Colours that ranks take in turn; a prime, so that rows of 2, 4 or 8 ranks differ from each other."""

KEYS = 16  # ranks that a legend lists one by one; for more it only explains the symbols
_SYMBOL_LIMIT = 11  # characters of the longest symbol: as many as two neighbouring ranks take at most
_LIST_LIMIT = 48  # characters of the longest CPU list in a legend; a longer list is replaced by its length


class Annotation(Record):
    """What a picture shows on a CPU or a core.

    `mark` selects the colours: a class in SVG, a style in terminals. `words` are for tooltips and legends, ""
    where the picture says the same elsewhere.
    """

    symbol: str
    mark: str
    words: str = ""


NO_ANNOTATION = Annotation(symbol="", mark="")


class Overlay(Record):
    """What a picture shows beyond the machine: lines of text, annotations by CPU, and keys of its legend.

    `notes` has only the warnings of a plan: idle CPUs and crossed boundaries are visible in the picture.
    `cores` maps every CPU to the annotation of its core. `ranks` are the keys of single ranks, or of the
    colours if there are many ranks. `cpu_keys` and `core_keys` are the keys of all other symbols.
    """

    heading: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cpus: Mapping[int, Annotation] = {}
    cores: Mapping[int, Annotation] = {}
    ranks: tuple[Annotation, ...] = ()
    cpu_keys: tuple[Annotation, ...] = ()
    core_keys: tuple[Annotation, ...] = ()


NOTHING = Overlay()  # for a machine without a plan
_RanksByCpu = Mapping[int, CpuSet]  # every CPU with the ranks that it is given to, as a set of rank numbers
_Symbols = Mapping[CpuSet, str]  # the symbol of every set of ranks


def make_overlay(plan: Plan) -> Overlay:
    """Return what a picture shows of a plan; every online CPU and core gets one annotation."""
    ranks_by_cpu = _map_ranks((placement.cpuset, placement.rank) for placement in plan.placements)
    cores = [core.cpus & plan.machine.online for core in plan.machine.at(Level.CORE)]
    ranks_by_core = [union(ranks_by_cpu.get(cpu, EMPTY) for cpu in core) for core in cores]
    symbols = _make_symbols([*ranks_by_core, *ranks_by_cpu.values()])
    by_cpu = _annotate_cpus(plan, ranks_by_cpu, symbols)
    by_core = list(_annotate_cores(plan, list(zip(cores, ranks_by_core, strict=True)), symbols, by_cpu))
    return Overlay(
        heading=make_plan_heading(plan),
        notes=tuple(f"warning: {note.text}" for note in plan.all_notes if note.warning),
        cpus=by_cpu,
        cores={cpu: annotation for core, annotation in zip(cores, by_core, strict=True) for cpu in core},
        ranks=tuple(_rank_keys(plan)),
        cpu_keys=tuple(_other_keys(plan, symbols, by_cpu.values())),
        core_keys=tuple(_other_keys(plan, symbols, by_core)),
    )


def rank_mark(rank: int) -> str:
    """Return the mark of a rank; there are as many different marks as colours."""
    return f"rank-{rank % COLOURS}"


def _map_ranks(given: Iterable[tuple[CpuSet, int]]) -> dict[int, CpuSet]:
    """Map every CPU to the set of ranks that have it; `given` are pairs of a CPU set and its rank.

    Ranks with equal sets are joined first, because thousands of ranks may share all CPUs.
    """
    ranks_of_set: dict[CpuSet, int] = {}
    for cpus, rank in given:
        ranks_of_set[cpus] = ranks_of_set.get(cpus, 0) | 1 << rank
    bits: dict[int, int] = {}
    for cpus, ranks in ranks_of_set.items():
        for cpu in cpus:
            bits[cpu] = bits.get(cpu, 0) | ranks
    made = {ranks: CpuSet.from_bits(ranks) for ranks in bits.values()}
    return {cpu: made[ranks] for cpu, ranks in bits.items()}


def _make_symbols(sets: Iterable[CpuSet]) -> dict[CpuSet, str]:
    """Give every set of ranks a symbol: its numbers or, if these are long, the next of a, b, ... z, a1 ..."""
    symbols: dict[CpuSet, str] = {}
    letters = (f"{letter}{number or ''}" for number in itertools.count() for letter in ascii_lowercase)
    for ranks in sets:
        if ranks and ranks not in symbols:
            text = _rank_numbers(ranks)
            symbols[ranks] = text if len(text) <= _SYMBOL_LIMIT else next(letters)
    return symbols


def _rank_numbers(ranks: CpuSet) -> str:
    """Return rank numbers with slashes, and three or more neighbours as a range: "0/1", "0-3/8"."""
    return "/".join(
        render_range(start, length) if length != 2 else f"{start}/{start + 1}"
        for start, length in ranks.ranges()
    )


def _mark_service(annotation: Annotation) -> Annotation:
    """Return the annotation of a service CPU, or of a core with only such CPUs, of the same ranks."""
    words = f"for service threads of {annotation.words.partition(':')[0]}"
    return annotation.replace(symbol=f"{annotation.symbol}{_SERVICE}", words=words)


_SERVICE = "s"  # the end of the symbols of service CPUs


def _annotate(ranks: CpuSet, symbols: _Symbols, words: str) -> Annotation:
    mark = rank_mark(ranks.first) if len(ranks) == 1 else "shared"
    return Annotation(symbol=symbols[ranks], mark=mark, words=words)


def _annotate_cpus(plan: Plan, ranks_by_cpu: _RanksByCpu, symbols: _Symbols) -> dict[int, Annotation]:
    """Return the annotations of all online CPUs: CPUs of ranks, and the others."""
    made = {ranks: _annotate(ranks, symbols, named("rank", ranks)) for ranks in set(ranks_by_cpu.values())}
    annotations = {cpu: made[ranks] for cpu, ranks in ranks_by_cpu.items()}
    for cpu in plan.used - plan.compute:  # no rank computes there
        annotations[cpu] = _mark_service(annotations[cpu])
    machine = plan.machine
    reserved_for = _map_ranks((placement.reserved, placement.rank) for placement in plan.placements)
    for cpu in machine.online - CpuSet(ranks_by_cpu):
        if cpu in plan.reserved:
            ranks = reserved_for.get(cpu, EMPTY)
            annotations[cpu] = _RESERVED
            if 0 < len(ranks) < len(plan.placements):  # "for all ranks" would say nothing more
                annotations[cpu] = _RESERVED.replace(words=f"reserved for {named('rank', ranks)}")
        elif cpu not in machine.allowed:
            annotations[cpu] = _NOT_ALLOWED
        elif cpu in plan.avoided:
            annotations[cpu] = _USED_BY_OTHERS
        else:
            annotations[cpu] = _EXCLUDED if cpu in machine.excluded_by_default else _IDLE
    return annotations


_RESERVED = Annotation(symbol="R", mark="reserved", words="reserved")
_IDLE = Annotation(symbol=".", mark="idle", words="idle")
_EXCLUDED = Annotation(symbol="*", mark="apart")
_USED_BY_OTHERS = Annotation(symbol="o", mark="taken")
_NOT_ALLOWED = Annotation(symbol="-", mark="not-allowed")

_PRIORITY = tuple(
    annotation.mark for annotation in (_RESERVED, _IDLE, _EXCLUDED, _USED_BY_OTHERS, _NOT_ALLOWED)
)
"""The marks of CPUs without a rank; the mark of a core is the first of them among its CPUs."""

_WORDS = {
    "shared": "shared by these ranks",
    "reserved": "reserved",
    "idle": "idle",
    "apart": "excluded by default",
    "taken": "used by other runs",
    "not-allowed": "not allowed",
}


def _annotate_cores(
    plan: Plan, cores: Sequence[tuple[CpuSet, CpuSet]], symbols: _Symbols, by_cpu: Mapping[int, Annotation]
) -> Iterator[Annotation]:
    """Yield the annotation of every core; `cores` are pairs of its CPUs and of the ranks on it."""
    single, compute = {ranks.first for _, ranks in cores if len(ranks) == 1}, plan.compute
    words_of_rank = {
        placement.rank: _describe(plan, placement)
        for placement in plan.placements
        if placement.rank in single
    }
    for cpus, ranks in cores:
        if ranks:
            words = words_of_rank[ranks.first] if len(ranks) == 1 else named("rank", ranks)
            annotation = _annotate(ranks, symbols, words)
            yield _mark_service(annotation) if cpus.isdisjoint(compute) else annotation
        else:
            first = min(
                (by_cpu[cpu] for cpu in cpus), key=lambda annotation: _PRIORITY.index(annotation.mark)
            )
            yield first.replace(words=first.words or _WORDS[first.mark])


def _describe(plan: Plan, placement: Placement) -> str:
    """Return what a rank gets: "rank 0: CPUs 0-3, 4 threads, service CPU 4, gpu:0"; "rank 3 (load 2): …"."""
    kinds = [("CPU", placement.compute), ("service CPU", placement.service_cpus)]
    compute, service = (
        named(noun, cpus) if len(render_cpus(cpus)) <= _LIST_LIMIT else count(len(cpus), noun)
        for noun, cpus in kinds
    )
    label = f" ({plan.labels[placement.rank]})" if plan.groups else ""
    parts = [f"rank {placement.rank}{label}: {compute}", count(placement.threads, "thread")]
    parts += [service] if placement.service_cpus else []
    return ", ".join([*parts, *render_device_names(placement.devices)])


def _rank_keys(plan: Plan) -> Iterator[Annotation]:
    """Yield a key for each rank, or for each colour if there are many ranks."""
    if len(plan.placements) <= KEYS:
        for placement in plan.placements:
            rank = placement.rank
            yield Annotation(symbol=str(rank), mark=rank_mark(rank), words=_describe(plan, placement))
        return
    for first in range(COLOURS):
        ranks = CpuSet(range(first, len(plan.placements), COLOURS))
        yield Annotation(symbol="", mark=rank_mark(first), words=f"ranks {render_cpus(ranks)}")


def _other_keys(plan: Plan, symbols: _Symbols, annotations: Iterable[Annotation]) -> Iterator[Annotation]:
    """Yield the keys of everything but single ranks: shared CPUs, letters, and CPUs without a rank."""
    shown = {annotation.symbol: annotation for annotation in annotations}
    yield from _shared_keys({ranks: symbol for ranks, symbol in symbols.items() if symbol in shown})
    service = (shown[f"{symbol}{_SERVICE}"] for symbol in symbols.values() if f"{symbol}{_SERVICE}" in shown)
    yield from (key.replace(words="for service threads of this rank") for key in itertools.islice(service, 1))
    by_mark = {annotation.mark: annotation for annotation in shown.values()}
    reasons = ", ".join(name for name, _ in plan.machine.exclusion_reasons)
    for mark in _PRIORITY:
        if mark in by_mark:
            words = f"{_WORDS[mark]} ({reasons})" if mark == _EXCLUDED.mark else _WORDS[mark]
            yield by_mark[mark].replace(words=words)


def _shared_keys(symbols: _Symbols) -> Iterator[Annotation]:
    """Yield the keys of sets of several ranks: one for all symbols that are numbers, one for each letter.

    Many letters have only one key, too.
    """
    several = {symbol: ranks for ranks, symbol in symbols.items() if len(ranks) > 1}
    numbers = [symbol for symbol, ranks in several.items() if symbol == _rank_numbers(ranks)]
    letters = [symbol for symbol in several if symbol not in numbers]
    keys = [(symbol, _WORDS["shared"]) for symbol in numbers[:1]]
    if len(letters) > KEYS:
        keys.append((f"{letters[0]} to {letters[-1]}", "sets of many ranks; --format json lists them"))
    else:
        keys += [(symbol, named("rank", several[symbol])) for symbol in letters]
    yield from (Annotation(symbol=symbol, mark="shared", words=words) for symbol, words in keys)
