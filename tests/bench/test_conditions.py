"""Facts beside the measured times: the machine and its load."""

import os

import pytest

from ompbind.bench.conditions import (
    SystemCounts,
    make_conditions,
    make_topology_digest,
    read_counts,
    read_hardware,
    read_processor,
)
from ompbind.bench.records import Conditions
from ompbind.cpuset import CpuSet
from ompbind.inspection.verdict import CpuUsage
from ompbind.machine.read import read_machine
from ompbind.machine.read.archive import ArchiveRoot
from ompbind.machine.read.root import DirectoryRoot
from tests.recordings import ABSENT, name_of, recorded


def counts(**changes):
    usage = CpuUsage(at_s=0.0, cpus={}, processes={})
    return SystemCounts(**{"stolen_s": None, "other_runs": 0, "usage": usage, **changes})


def used(at_s, cpu_s, own_s=0.0):
    """The CPU time of two CPUs together, and of the ranks."""
    return CpuUsage(at_s=at_s, cpus={0: cpu_s, 1: 0.0}, processes={1: (own_s, 0.0)})


@pytest.mark.parametrize(("before", "after", "expected"), [
    (counts(), counts(), Conditions()),
    (counts(stolen_s=1.0), counts(stolen_s=1.5), Conditions(stolen_s=0.5)),
    (counts(stolen_s=1.0), counts(stolen_s=0.9), Conditions(stolen_s=0.0)),
    (counts(usage=used(0, 1.0)), counts(usage=used(2, 2.5, 0.5)), Conditions(others_share=0.25)),
    (counts(other_runs=2), counts(other_runs=1), Conditions(other_runs=2)),
])  # fmt: skip
def test_conditions_are_differences_of_counts(before, after, expected):
    assert make_conditions(before, after, CpuSet((0, 1))) == expected


def test_the_stolen_time_of_the_machine_is_counted(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  0 0 0 0 0 0 0 250 0 0\ncpu0 0 0 0 0 0 0 0 250 0 0\n")
    expected = 250 / os.sysconf("SC_CLK_TCK")
    assert read_counts(DirectoryRoot(str(tmp_path)), "r").stolen_s == expected
    assert read_counts(DirectoryRoot(str(tmp_path / "proc")), "r").stolen_s is None


PROCESSORS = {
    "ghw-i7-1270P": "12th Gen Intel(R) Core(TM) i7-1270P",
    "ghw-arm64-vm": "0x41 0xd0c",
    "rec-power8-smt8": "POWER8NVL (raw), altivec supported",
    "hwloc-20s390-2g6s4c": "version = 00, identification = 279F25, machine = 2817",
    "hwloc-2arm-2c": "ARMv7 Processor rev 1 (v7l)",
    "hwloc-256ia64-64n2s2c": "the architecture",
}


@pytest.mark.parametrize(
    "path",
    [p for p in recorded("dumps/*.tar.gz") if name_of(p) in PROCESSORS] or [ABSENT],
    ids=name_of,
)
def test_names_the_processor_of_every_architecture(path):
    root = ArchiveRoot(path.read_bytes(), path.name)
    assert read_processor(root, "the architecture") == PROCESSORS[name_of(path)]


def test_the_hardware_is_this_machine_and_its_digest_is_of_the_topology_alone():
    machine = read_machine()
    hardware = read_hardware(machine)
    assert hardware.hostname
    assert hardware.processor
    assert (hardware.allowed, hardware.quota) == (str(machine.allowed), machine.quota)
    machine = read_machine("synthetic:pack:2 l3:2 core:4 pu:2")
    digest = make_topology_digest(machine)
    assert digest == make_topology_digest(machine.replace(allowed=CpuSet((0,)), quota=1.0, source="other"))
    for other in ("pack:2 l3:2 core:4 pu:1", "pack:2 l3:4 core:2 pu:2", "pack:2 core:8 pu:2"):
        assert digest != make_topology_digest(read_machine(f"synthetic:{other}"))
