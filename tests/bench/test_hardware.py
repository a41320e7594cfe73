"""The machine of a session: the name of its processor, and a digest that is equal for equal machines."""

import pytest

from ompbind.bench.conditions import make_topology_digest, read_hardware, read_processor
from ompbind.cpuset import CpuSet
from ompbind.machine.sources.archive import ArchiveRoot
from ompbind.machine.sources.reading import read_machine
from tests.recordings import name_of, recorded

NAMES = {
    "ghw-i7-1270P": "12th Gen Intel(R) Core(TM) i7-1270P",
    "lscpu-x86_64-epyc_7451": "AMD EPYC 7451 24-Core Processor",
    "ghw-arm64-vm": "0x41 0xd0c",
    "rec-power8-smt8": "POWER8NVL (raw), altivec supported",
    "hwloc-20s390-2g6s4c": "version = 00, identification = 279F25, machine = 2817",
    "hwloc-2arm-2c": "ARMv7 Processor rev 1 (v7l)",
    "lscpu-sparc64": "TI UltraSparc II (BlackBird)",
    "hwloc-256ia64-64n2s2c": "the architecture",
}


@pytest.mark.parametrize("path", [p for p in recorded("dumps/*.tar.gz") if name_of(p) in NAMES], ids=name_of)
def test_names_the_processor_of_every_architecture(path):
    assert (
        read_processor(ArchiveRoot(path.read_bytes(), path.name), "the architecture") == NAMES[name_of(path)]
    )


def test_reads_this_machine():
    machine = read_machine()
    hardware = read_hardware(machine)
    assert hardware.hostname
    assert hardware.processor
    assert (hardware.allowed, hardware.quota) == (str(machine.allowed), machine.quota)
    assert len(hardware.digest) == 64


def test_the_digest_is_of_the_topology_alone():
    machine = read_machine("synthetic:pack:2 l3:2 core:4 pu:2")
    digest = make_topology_digest(machine)
    assert digest == make_topology_digest(machine.replace(allowed=CpuSet((0,)), quota=1.0, source="other"))
    for other in ("pack:2 l3:2 core:4 pu:1", "pack:2 l3:4 core:2 pu:2", "pack:2 core:8 pu:2"):
        assert digest != make_topology_digest(read_machine(f"synthetic:{other}"))
