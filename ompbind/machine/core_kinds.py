"""Core kinds: which cores of a hybrid processor are for performance, and which for efficiency.

The best of four facts decides: the type that the system reports (Intel's `cpu_core` and `cpu_atom`), else
the capacity of cores (Arm). If neither is reported, kinds are inferred: from hardware threads and L2 caches
(`_by_topology`), else from the highest frequencies. For capacities and frequencies:

    capacities  1024 855 | 280    sorted, strongest first
    gaps          1.2    |  3.1   a core below 0.9 of the next stronger core begins another kind
                                  the widest gap separates performance from efficiency

Frequencies need a gap of 0.8: processors with equal cores let their best cores run faster, by up to 14 %.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.machine.model import CORE_KIND_NAMES, CoreKind, CoreKindName, Level, Machine
from ompbind.record import Record

_STEPS = {"capacity": 0.9, "frequency": 0.8}
"""A core below this share of the next stronger core is of another kind."""

_STRONGEST = 1024  # the strength of the strongest kind, as the kernel scales capacities


class CoreTraits(Record):
    """The facts that decide the kind of a core; None is unknown. The system reports `type`."""

    cpus: CpuSet
    type: CoreKindName | None = None
    capacity: int | None = None
    frequency: int | None = None


def make_kinds(machine: Machine, traits: Sequence[CoreTraits]) -> tuple[CoreKind, ...]:
    """Return the kinds of cores, strongest first; none if all cores are equal."""
    if {core.type for core in traits} == {*CORE_KIND_NAMES}:
        return _by_name("type", *([core for core in traits if core.type == name] for name in CORE_KIND_NAMES))
    return _by_number(traits, "capacity") or _by_topology(machine, traits) or _by_number(traits, "frequency")


def _by_name(source: str, strong: Sequence[CoreTraits], weak: Sequence[CoreTraits]) -> tuple[CoreKind, ...]:
    """Make the kinds of named cores; efficiency cores of unknown speed count half as strong."""
    best, other = (max(core.capacity or core.frequency or 0 for core in cores) for cores in (strong, weak))
    share = min(1.0, other / best) if best and other else 0.5
    return tuple(
        CoreKind(name=name, cpus=union(core.cpus for core in cores), strength=strength, source=source)
        for name, cores, strength in zip(
            CORE_KIND_NAMES, (strong, weak), (_STRONGEST, round(_STRONGEST * share)), strict=True
        )
    )


def _by_topology(machine: Machine, traits: Sequence[CoreTraits]) -> tuple[CoreKind, ...]:
    """Infer the kinds of cores from hardware threads and L2 caches, as Intel's hybrid processors have them.

        i7-1270P       4 performance cores          8 efficiency cores
        CPUs           0-1   2-3   4-5   6-7        8 9 10 11   12 13 14 15
        L2 caches      0-1   2-3   4-5   6-7        8-11        12-15

    A performance core has an L2 cache of its own. Efficiency cores have one hardware thread and share an L2
    cache, 2 or 4 cores each. If no core has two hardware threads, 4 must share one. Known frequencies must
    agree. Offline or hidden CPUs and several packages could look alike, so they are not used.
    """
    has_all_cpus = not machine.offline and machine.online == CpuSet(range(len(machine.online)))
    if not has_all_cpus or len(machine.at(Level.PACKAGE)) > 1:
        return ()
    cache_of = {cpu: cache.cpus for cache in machine.at(Level.L2) for cpu in cache.cpus}
    caches = [cache_of.get(core.cpus.first, EMPTY) for core in traits]
    strong, weak = (
        [core for core, cache in zip(traits, caches, strict=True) if cache and (cache == core.cpus) is own]
        for own in (True, False)
    )
    widths = [{len(core.cpus) for core in cores} for cores in (strong, weak)]
    shares = {len(cache_of[core.cpus.first]) for core in weak}
    speeds = [[core.frequency or 0 for core in cores] for cores in (strong, weak)]
    are_hybrid = (
        len(strong) + len(weak) == len(traits)
        and len(widths[0]) == 1
        and widths[1] == {1}
        and shares <= {2, 4}
        and (widths[0] != {1} or 4 in shares)
        and (min(speeds[0]) > max(speeds[1]) or not all(map(all, speeds)))
    )
    return _by_name("topology", strong, weak) if are_hybrid else ()


def _by_number(traits: Sequence[CoreTraits], source: str) -> tuple[CoreKind, ...]:
    """Make the kinds from the capacities or frequencies; none if a number is unknown, or all are similar.

    Each floor begins a kind; the widest gap between two floors separates performance from efficiency.
    """
    known = [(int(value), core) for core in traits if (value := getattr(core, source))]
    descending = sorted({value for value, _ in known}, reverse=True)
    pairs = zip(descending, [*descending[1:], 0], strict=False)  # of nothing, no pairs
    floors = [value for value, weaker in pairs if weaker < _STEPS[source] * value]
    if len(known) < len(traits) or len(floors) < 2:
        return ()
    gaps = [strong / weak for strong, weak in pairwise(floors)]
    performance_kinds = gaps.index(max(gaps)) + 1
    return tuple(
        CoreKind(
            name="performance" if position < performance_kinds else "efficiency",
            cpus=union(core.cpus for value, core in known if low <= value < high),
            strength=round(_STRONGEST * low / floors[0]),
            source=source,
        )
        for position, (high, low) in enumerate(pairwise([descending[0] + 1, *floors]))
    )


def kind_by_cpu(kinds: Iterable[CoreKind]) -> dict[int, str]:
    """Map each CPU of `kinds` to the name of its kind of core."""
    return {cpu: kind.name for kind in kinds for cpu in kind.cpus}
