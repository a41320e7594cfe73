"""Core kinds: which cores of a hybrid processor are for performance, and which for efficiency.

The best of three facts decides: the type that the system reports (Intel's `cpu_core` and `cpu_atom`), else
the capacity of cores (Arm), else their highest frequency. For the latter two:

    capacities  1024 855 | 280    sorted, strongest first
    gaps          1.2    |  3.1   a core below 0.9 of the next stronger core begins another kind
                                  the widest gap separates performance from efficiency

Cores within a tenth are one kind, because ordinary processors let their best cores run a little faster.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ompbind.cpuset import CpuSet, union
from ompbind.machine.model import CORE_KIND_NAMES, CoreKind, CoreKindName
from ompbind.record import Record

STEP = 0.9  # a core below this share of the next stronger core is of another kind
STRONGEST = 1024  # the strength of the strongest kind, as the kernel scales capacities


class CoreTraits(Record):
    """The facts of some cores that decide their kind; None is unknown.

    `type` is the kind that the system reports. `capacity` and `frequency` are in any unit, the same for all
    cores.
    """

    cpus: CpuSet
    type: CoreKindName | None = None
    capacity: int | None = None
    frequency: int | None = None


def make_kinds(traits: Sequence[CoreTraits]) -> tuple[CoreKind, ...]:
    """Return the kinds of cores, strongest first; none if all cores are equal."""
    if {core.type for core in traits} == {"performance", "efficiency"}:
        strong, weak = (
            max(core.capacity or core.frequency or 0 for core in traits if core.type == name)
            for name in CORE_KIND_NAMES
        )
        share = min(1.0, weak / strong) if strong and weak else 0.5
        strengths: dict[CoreKindName, int] = {
            "performance": STRONGEST,
            "efficiency": round(STRONGEST * share),
        }
        cpus = {name: union(core.cpus for core in traits if core.type == name) for name in strengths}
        return tuple(
            CoreKind(name=name, cpus=cpus[name], strength=strength, source="type")
            for name, strength in strengths.items()
        )
    for source in ("capacity", "frequency"):  # the better fact first
        known = [(int(value), core) for core in traits if (value := getattr(core, source))]
        descending = sorted({value for value, _ in known}, reverse=True)
        pairs = zip(descending, [*descending[1:], 0], strict=False)  # of nothing, no pairs
        floors = [value for value, weaker in pairs if weaker < STEP * value]
        if len(known) == len(traits) and len(floors) > 1:
            return _by_floors(known, floors, source)
    return ()


def _by_floors(
    known: Sequence[tuple[int, CoreTraits]], floors: Sequence[int], source: str
) -> tuple[CoreKind, ...]:
    """Make a kind for each floor; the widest gap between two floors separates performance from efficiency."""
    gaps = [strong / weak for strong, weak in pairwise(floors)]
    performance_kinds = gaps.index(max(gaps)) + 1
    bounds = zip([max(value for value, _ in known) + 1, *floors], floors, strict=False)
    return tuple(
        CoreKind(
            name="performance" if position < performance_kinds else "efficiency",
            cpus=union(core.cpus for value, core in known if low <= value < high),
            strength=round(STRONGEST * low / floors[0]),
            source=source,
        )
        for position, (high, low) in enumerate(bounds)
    )


def kind_by_cpu(kinds: Iterable[CoreKind]) -> dict[int, str]:
    """Map each CPU of `kinds` to the name of its kind of core."""
    return {cpu: kind.name for kind in kinds for cpu in kind.cpus}
