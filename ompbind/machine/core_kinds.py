"""Core kinds: which cores of a hybrid processor are for performance, and which for efficiency.

The best of five facts decides: the type that the system reports (Intel's `cpu_core` and `cpu_atom`), else
the capacity of cores (Arm). If neither is reported, kinds are inferred: from part numbers (Arm), hardware
threads and L2 caches (`_by_topology`), else from the highest frequencies. For capacities and frequencies:

    capacities  1024 855 | 280    sorted, strongest first
    gaps          1.2    |  3.1   a core below 0.9 of the next stronger core begins another kind
                                  the widest gap separates performance from efficiency

Frequencies need a gap of 0.8: processors with equal cores let their best cores run faster, by up to 14 %.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.machine.model import CORE_KIND_NAMES, CoreKind, CoreKindName, Level, Machine
from ompbind.record import Record

_STEPS = {"capacity": 0.9, "frequency": 0.8}
"""A core below this share of the next stronger core is of another kind."""

_EFFICIENCY_PARTS = {
    "0x41": "c05 c07 d01 d02 d03 d04 d05 d06 d46 d80 d88",  # Arm's Cortex-A5 to Cortex-A520
    "0x51": "801 803 805",  # Qualcomm's Kryo Silver
    "0x61": "022 024 028 032 034 038",  # Apple's Icestorm and Blizzard
}
"""Parts of Arm cores for efficiency, by implementer, as in arch/arm64/include/asm/cputype.h of Linux."""

_STRONGEST = 1024  # the strength of the strongest kind, as the kernel scales capacities


class CoreTraits(Record):
    """The facts that decide the kind of a core; None is unknown. The system reports `type`.

    `preference` is the rank of the core in the order in which the kernel or the firmware prefers cores,
    highest first. `part` are the implementer and the part of an Arm core, "0x41 0xd05".
    """

    cpus: CpuSet
    type: CoreKindName | None = None
    capacity: int | None = None
    preference: int | None = None
    frequency: int | None = None
    part: str = ""


def add_kinds(machine: Machine, traits: Sequence[CoreTraits]) -> Machine:
    """Return the machine with its kinds of cores and its fastest cores, and a remark on unknown parts."""
    kinds, remarks = make_kinds(machine, traits), machine.remarks
    parts = dict.fromkeys(core.part for core in traits)
    if len(parts) > 1 and not kinds:
        cpus = {part: union(core.cpus for core in traits if core.part == part) for part in parts}
        listed = "; ".join(f"{part or 'unknown'}: {named('CPU', cpus[part])}" for part in parts)
        remarks += (f"cores differ in implementer and part, but which are faster is unknown: {listed}",)
    return machine.replace(kinds=kinds, fast=_find_fast_caches(machine, traits), remarks=remarks)


def make_kinds(machine: Machine, traits: Sequence[CoreTraits]) -> tuple[CoreKind, ...]:
    """Return the kinds of cores, strongest first; none if all cores are equal."""
    return (
        _by_name("type", traits, [core.type for core in traits])
        or _by_number(traits, "capacity")
        or _by_name("part", traits, [_name_part(core.part) for core in traits])
        or _by_topology(machine, traits)
        or _by_number(traits, "frequency")
    )


def _name_part(part: str) -> CoreKindName | None:
    maker, _, number = part.partition(" 0x")
    name = CORE_KIND_NAMES[number in _EFFICIENCY_PARTS.get(maker, "").split()]
    return name if number else None


def _find_fast_caches(machine: Machine, traits: Sequence[CoreTraits]) -> CpuSet:
    """Return the CPUs of the L3 caches that have the best cores; none if these are equal or unknown."""
    caches = machine.at(Level.L3)
    for fact in ("preference", "frequency"):
        values = {cpu: getattr(core, fact) or 0 for core in traits for cpu in core.cpus}
        best = [max(values[cpu] for cpu in cache.cpus) for cache in caches]
        if best and 0 < min(best) < max(best):
            return union(cache.cpus for cache, each in zip(caches, best, strict=True) if each == max(best))
    return EMPTY


def _by_name(
    source: str, traits: Sequence[CoreTraits], names: Sequence[CoreKindName | None]
) -> tuple[CoreKind, ...]:
    """Make the kinds of named cores; efficiency cores of unknown speed count half as strong.

    None unless all cores have a name, and there are both kinds.
    """
    if {*names} != {*CORE_KIND_NAMES}:
        return ()
    pairs = list(zip(traits, names, strict=True))
    both = [[core for core, each in pairs if each == name] for name in CORE_KIND_NAMES]
    best, other = (max(core.capacity or core.frequency or 0 for core in cores) for cores in both)
    share = min(1.0, other / best) if best and other else 0.5
    strengths = (_STRONGEST, round(_STRONGEST * share))
    return tuple(
        CoreKind(name=name, cpus=union(core.cpus for core in cores), strength=strength, source=source)
        for name, cores, strength in zip(CORE_KIND_NAMES, both, strengths, strict=True)
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
    names: list[CoreKindName] = ["performance" if core in strong else "efficiency" for core in traits]
    return _by_name("topology", traits, names) if are_hybrid else ()


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


_HYBRID = r"Core\(TM\) (?:Ultra|i[79]-1[234]\d{3}|i5-1[34]\d{3}|i5-12600K|i5-12\d{3}H|i\d-1[23]\d{2}[PU])"
_TWO_CACHES = r"Ryzen 9 \d9[05]0X3D"
"""Model names of processors with two kinds of cores, and with two L3 caches of different size."""


def list_contradictions(machine: Machine, model: str) -> Iterator[str]:
    """Yield a remark if a hypervisor shows equal cores, but the `model` has others."""
    differ = ""
    if "Core(TM)" in model and re.search(_HYBRID, model):
        differ = "performance and efficiency cores"
    if "X3D" in model and re.search(_TWO_CACHES, model) and len(machine.at(Level.L3)) < 2:
        differ = "two L3 caches of different size"
    if differ:
        text = f"{model} has {differ}, but the hypervisor shows equal cores: ranks may differ in speed"
        yield f"{text}; bind virtual CPUs to cores of one kind there"


def kind_by_cpu(kinds: Iterable[CoreKind]) -> dict[int, str]:
    """Map each CPU of `kinds` to the name of its kind of core."""
    return {cpu: kind.name for kind in kinds for cpu in kind.cpus}
