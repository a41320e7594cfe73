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

from ompbind.cpuset import union
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level, Machine
from ompbind.record import Record

_DIGITS = 16
"""Hexadecimal digits of a digest: equal digests of different machines would be a chance of 1 in 2^64."""

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
    isolated = machine.isolated, machine.nohz_full
    nodes = (
        f"{node.number} {node.cpus} {'no memory' if node.memory_bytes == 0 else 'memory'} {node.distances}"
        for node in machine.nodes
    )
    parts = [
        ("arch", machine.arch),
        ("cpus", _digest(machine.online, [str(machine.online)])),
        _make_domain_part(machine, "cores"),
        _make_domain_part(machine, "packages"),
        ("nodes", _digest(machine.nodes, nodes)),
        _make_domain_part(machine, "caches"),
        ("kinds", _digest(machine.kinds, (f"{kind.name} {kind.cpus}" for kind in machine.kinds))),
        ("isolated", _digest(union(isolated), map(str, isolated))),
    ]
    for kind in DeviceKind:
        own = [device for device in machine.devices if device.kind is kind and not device.physical]
        if own:
            about = (
                f"{each.address} {each.partition} {each.pci_class} {each.vendor} {each.product}"
                f" {each.cpus} {each.node}"
                for each in own
            )
            parts.append((str(kind), _digest(own, about)))
    return Fingerprint(parts=tuple(parts))


def find_difference(left: Fingerprint, right: Fingerprint, kinds: Iterable[DeviceKind] = ()) -> str:
    """Return the first subject in which two fingerprints differ, "" if none; of devices only these kinds."""
    first, second = left.as_dict(), right.as_dict()
    ignored = set(map(str, DeviceKind)) - set(map(str, kinds))
    subjects = (subject for subject in LABELS if subject not in ignored)
    return next((subject for subject in subjects if first.get(subject) != second.get(subject)), "")


def _make_domain_part(machine: Machine, subject: str) -> tuple[str, str]:
    domains = [domain for level in _LEVELS[subject] for domain in machine.at(level)]
    return subject, _digest(domains, (f"{domain.level} {domain.cpus}" for domain in domains))


def _digest(things: Iterable[object], lines: Iterable[str]) -> str:
    """Return the number of some things, and a digest of the sorted lines about them."""
    from hashlib import sha256  # noqa: PLC0415 - door: loads OpenSSL

    text = "\n".join(sorted(lines))
    return f"{len(tuple(things))}:{sha256(text.encode()).hexdigest()[:_DIGITS]}"
