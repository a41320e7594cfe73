"""The fingerprint of a machine: what a plan depends on, as short texts that can be compared.

A plan that was made before is for machines with the same fingerprint. It has a part for each subject, so that
an error can say what differs. A part is the number of things and a digest of all of them. What differs
between starts of one machine, or between equal machines, is left out:

- what this process may use: allowed CPUs, allowed memory, the CPU quota
- the exact size of memory: only whether a NUMA node has memory
- the numbers that the firmware gives to packages and cores, and the clock rate of kinds of cores
- of devices their unique identifiers, the names that drivers give them, and virtual functions
- CPUs that are offline, and remarks
"""

from collections.abc import Iterable

from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level, Machine
from ompbind.record import Record

_LEVELS = {
    "cores": (Level.CORE,),
    "packages": (Level.DRAWER, Level.BOOK, Level.PACKAGE, Level.DIE),
    "caches": (Level.L3, Level.CLUSTER, Level.L2),
}
"""The parts that are domains. Clusters share a part of a cache."""

LABELS = {
    "arch": "processor architecture",
    "cpus": "CPUs",
    "cores": "cores",
    "packages": "packages and dies",
    "nodes": "NUMA nodes",
    "caches": "caches",
    "kinds": "kinds of cores",
    "isolated": "isolated CPUs",
    **{str(kind): f"{kind.label}s" for kind in DeviceKind},
}
"""What each part is about, for messages, in the order in which parts are compared."""


class Fingerprint(Record):
    """The fingerprint of a machine: `parts` are (subject, text) pairs, in the order of LABELS.

    Devices have a part for each of their kinds, if they were read.
    """

    parts: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, str]:
        """Return the texts by subject."""
        return dict(self.parts)


def make_fingerprint(machine: Machine) -> Fingerprint:
    """Return the fingerprint of a machine."""
    lines = {"cpus": [str(machine.online)]}
    for subject, levels in _LEVELS.items():
        domains = [domain for level in levels for domain in machine.at(level)]
        lines[subject] = [f"{domain.level} {domain.cpus}" for domain in domains]
    lines["nodes"] = [
        f"{node.number} {node.cpus} {'no memory' if node.memory_bytes == 0 else 'memory'} {node.distances}"
        for node in machine.nodes
    ]
    lines["kinds"] = [f"{kind.name} {kind.cpus}" for kind in machine.kinds]
    lines["isolated"] = [str(machine.isolated), str(machine.nohz_full)]
    for device in machine.devices:
        if not device.physical:
            lines.setdefault(str(device.kind), []).append(
                f"{device.address} {device.partition} {device.pci_class} {device.vendor} {device.product}"
                f" {device.cpus} {device.node}"
            )
    counts = {"cpus": len(machine.online), "isolated": len(machine.isolated | machine.nohz_full)}
    parts = (
        (subject, f"{counts.get(subject, len(lines[subject]))}:{_digest(lines[subject])}")
        for subject in LABELS
        if subject in lines
    )
    return Fingerprint(parts=(("arch", machine.arch), *parts))


def _digest(lines: Iterable[str]) -> str:
    """Return a digest of the sorted lines: two machines have the same by a chance of 1 in 2^64."""
    from hashlib import sha256  # noqa: PLC0415 - door: loads OpenSSL

    return sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def find_difference(left: Fingerprint, right: Fingerprint, kinds: Iterable[DeviceKind] = ()) -> str:
    """Return the first subject in which two fingerprints differ, "" if none; of devices only these kinds."""
    first, second = left.as_dict(), right.as_dict()
    ignored = set(map(str, DeviceKind)) - set(map(str, kinds))
    subjects = (subject for subject in LABELS if subject not in ignored)
    return next((subject for subject in subjects if first.get(subject) != second.get(subject)), "")
