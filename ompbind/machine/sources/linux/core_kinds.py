"""What the kernel tells of the kinds of cores: their type, their capacity, their highest frequency."""

from collections.abc import Sequence

from ompbind.cpuset import EMPTY
from ompbind.machine.core_kinds import CoreTraits, make_kinds
from ompbind.machine.model import CoreKind, Domain
from ompbind.machine.sources.filesystem import Root, read_list, whole_number
from ompbind.machine.sources.linux.sysfs import CPU

PERFORMANCE = "sys/devices/cpu_core/cpus"
"""The CPUs of the strong cores of Intel's hybrid processors; those beside them may have several lists."""


def read_kinds(root: Root, cores: Sequence[Domain]) -> tuple[CoreKind, ...]:
    """Read the kinds of cores, strongest first; none where all are alike or nothing tells."""
    strong = read_list(root, PERFORMANCE) or EMPTY
    capacities = _numbers(root, cores, "cpu_capacity")
    frequencies = _numbers(root, cores, "cpufreq/cpuinfo_max_freq")
    if not strong and capacities[0] is None and frequencies[0] is None:
        return ()
    return make_kinds(
        [
            CoreTraits(
                cpus=core.cpus,
                type=("performance" if core.cpus <= strong else "efficiency") if strong else None,
                capacity=capacity,
                frequency=frequency,
            )
            for core, capacity, frequency in zip(cores, capacities, frequencies, strict=True)
        ]
    )


def _numbers(root: Root, cores: Sequence[Domain], name: str) -> list[int | None]:
    """Read a number of the first CPU of every core; where the first core has none, no other is asked."""
    numbers: list[int | None] = []
    for core in cores:
        numbers.append(whole_number(root.read(f"{CPU}/cpu{core.cpus.first}/{name}")))
        if numbers[0] is None:
            return [None] * len(cores)
    return numbers
