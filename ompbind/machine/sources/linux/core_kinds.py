"""Facts about kinds of cores: type, capacity and highest frequency.

    sys/devices/cpu_core/cpus            the CPUs of Intel's performance cores
    cpu/cpuN/cpu_capacity                relative, 1024 for the strongest core (Arm, RISC-V)
    cpu/cpuN/cpufreq/cpuinfo_max_freq    in kHz

`machine.core_kinds` makes the kinds from these facts.
"""

from collections.abc import Sequence

from ompbind.cpuset import EMPTY
from ompbind.machine.core_kinds import CoreTraits, make_kinds
from ompbind.machine.model import CoreKind, Domain
from ompbind.machine.sources.filesystem import read_list, whole_number
from ompbind.machine.sources.linux.sysfs import CPU
from ompbind.machine.sources.root import Root

_PERFORMANCE_CPUS = "sys/devices/cpu_core/cpus"
"""The file with the CPUs of performance cores; all other cores are efficiency cores."""


def read_kinds(root: Root, cores: Sequence[Domain]) -> tuple[CoreKind, ...]:
    """Read the kinds of cores, strongest first; none if all cores are equal or nothing is known."""
    strong = read_list(root, _PERFORMANCE_CPUS) or EMPTY
    capacities = _read_numbers(root, cores, "cpu_capacity")
    frequencies = _read_numbers(root, cores, "cpufreq/cpuinfo_max_freq")
    if not strong and len(set(capacities)) == 1 and len(set(frequencies)) == 1:
        return ()  # all cores are equal, or nothing is known
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


def _read_numbers(root: Root, cores: Sequence[Domain], name: str) -> list[int | None]:
    """Read a number of the first CPU of each core; all None if the first core has none, to save reads."""
    numbers: list[int | None] = []
    for core in cores:
        numbers.append(whole_number(root.read(f"{CPU}/cpu{core.cpus.first}/{name}")))
        if numbers[0] is None:
            return [None] * len(cores)
    return numbers
