"""Core kinds: which cores of a hybrid processor are strong and which economical.

What the kernel calls them decides (Intel's `cpu_core` and `cpu_atom`), else their capacity (Arm), else
their highest frequency. Numbers within a tenth of each other are of one kind: processors without kinds
let their best cores run a little faster.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import get_args

from ompbind.cpuset import CpuSet, union
from ompbind.machine.model import CoreKind, KindName
from ompbind.record import Record

STEP = 0.9  # a core that is weaker than this share of the next stronger one is of another kind
STRONGEST = 1024  # the strength of the strongest kind, as the kernel scales capacities


class CoreTraits(Record):
    """What is known of cores: the kind that the system calls them, their capacity, their frequency.

    `capacity` and `frequency` are in any unit, the same for all cores; None is unknown.
    """

    cpus: CpuSet
    type: KindName | None = None
    capacity: int | None = None
    frequency: int | None = None


def make_kinds(traits: Sequence[CoreTraits]) -> tuple[CoreKind, ...]:
    """Tell the kinds of cores apart, strongest first; none where all cores are alike."""
    if {one.type for one in traits} == {"performance", "efficiency"}:
        return _by_type(traits)
    for source in ("capacity", "frequency"):  # the better measure first
        known = [(int(value), one) for one in traits if (value := getattr(one, source))]
        steps = _steps([value for value, _ in known])
        if len(known) == len(traits) and len(steps) > 1:
            return _by_steps(known, steps, source)
    return ()


def _by_type(traits: Sequence[CoreTraits]) -> tuple[CoreKind, ...]:
    strong, weak = (
        max(one.capacity or one.frequency or 0 for one in traits if one.type == name)
        for name in get_args(KindName)
    )
    share = min(1.0, weak / strong) if strong and weak else 0.5
    strengths: dict[KindName, int] = {"performance": STRONGEST, "efficiency": round(STRONGEST * share)}
    cpus = {name: union(one.cpus for one in traits if one.type == name) for name in strengths}
    return tuple(
        CoreKind(name=name, cpus=cpus[name], strength=strength, source="type")
        for name, strength in strengths.items()
    )


def _steps(values: Sequence[int]) -> list[int]:
    """Return the lowest number of each kind, strongest kind first."""
    falling = sorted(set(values), reverse=True)
    return [value for value, weaker in zip(falling, [*falling[1:], 0], strict=False) if weaker < STEP * value]


def _by_steps(
    known: Sequence[tuple[int, CoreTraits]], steps: Sequence[int], source: str
) -> tuple[CoreKind, ...]:
    """Make a kind of each step; the widest gap between two steps parts performance from efficiency."""
    gaps = [strong / weak for strong, weak in pairwise(steps)]
    strong_steps = gaps.index(max(gaps)) + 1
    bounds = zip([max(value for value, _ in known) + 1, *steps], steps, strict=False)
    return tuple(
        CoreKind(
            name="performance" if place < strong_steps else "efficiency",
            cpus=union(one.cpus for value, one in known if low <= value < high),
            strength=round(STRONGEST * low / steps[0]),
            source=source,
        )
        for place, (high, low) in enumerate(bounds)
    )
