"""Read the machine of a session, as far as it decides whether results can be compared."""

import os
from hashlib import sha256

from ompbind.bench.records import Hardware
from ompbind.machine.model import Machine
from ompbind.machine.sources.root import DirectoryRoot, Root, keyed_lines

_NAMES = ("model name", "cpu model", "cpu", "Processor", "Hardware", "processor 0", "CPU part")
"""Keys of /proc/cpuinfo with the name of the processor, the best first: each architecture has another."""


def read_hardware(machine: Machine) -> Hardware:
    """Return the name of this machine and its processor, and what its session may use."""
    return Hardware(
        hostname=os.uname().nodename,
        processor=read_processor(DirectoryRoot("/"), machine.arch),
        allowed=str(machine.allowed),
        quota=machine.quota,
        digest=make_topology_digest(machine),
    )


def read_processor(root: Root, arch: str) -> str:
    """Return the name of the processor; the architecture where the kernel does not say more."""
    lines: dict[str, str] = {}
    for key, value in keyed_lines(root.read("proc/cpuinfo")):
        lines.setdefault(key, value)
    name = next((lines[key] for key in _NAMES if lines.get(key)), "")
    if name.startswith("0x"):  # ARM: numbers of the designer and of the core
        name = f"{lines.get('CPU implementer', '')} {name}".strip()
    return " ".join(name.split()) if name and not name.isdigit() else arch


def make_topology_digest(machine: Machine) -> str:
    """Return a digest of the CPUs, cores, caches, NUMA nodes and kinds of cores.

    The size of memory is no part: the kernel reports another size after some updates.
    """
    facts = (
        machine.arch,
        str(machine.online),
        [(domain.level.value, domain.index, str(domain.cpus)) for domain in machine.domains],
        [(node.number, str(node.cpus), node.distances) for node in machine.nodes],
        [(kind.name, str(kind.cpus)) for kind in machine.kinds],
    )
    return sha256(repr(facts).encode()).hexdigest()
