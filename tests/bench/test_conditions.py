"""Facts beside the measured times: the machine, its load and frequencies, and performance counters."""

import errno
import struct

import pytest

from ompbind.bench.conditions import (
    Frequencies,
    SystemCounts,
    SystemRoot,
    has_quota,
    make_conditions,
    make_topology_digest,
    read_counts,
    read_frequencies,
    read_hardware,
    read_processor,
)
from ompbind.bench.counters import EVENTS, CounterEvent, CounterSupport, explain_missing, make_attributes
from ompbind.bench.records import Conditions
from ompbind.cpuset import CpuSet
from ompbind.machine.sources.archive import ArchiveRoot
from ompbind.machine.sources.linux.cgroup import Throttling
from ompbind.machine.sources.reading import read_machine
from ompbind.machine.sources.root import DirectoryRoot
from tests.recordings import name_of, recorded


def counts(throttled=None, **changes):
    throttling = None
    if throttled is not None:
        throttling = Throttling(
            cgroup="", periods=99, throttled_periods=throttled, throttled_s=throttled / 10
        )
    values = {"throttling": throttling, "stolen_s": None, "oom_kills": None, "other_runs": 0}
    return SystemCounts(**{**values, **changes})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (counts(), counts(), Conditions()),
        (counts(5), counts(8), Conditions(throttled_s=pytest.approx(0.3), throttled_periods=3)),
        (counts(5), counts(), Conditions()),
        (counts(stolen_s=1.0), counts(stolen_s=1.5), Conditions(stolen_s=0.5)),
        (counts(stolen_s=1.0), counts(stolen_s=0.9), Conditions(stolen_s=0.0)),
        (counts(oom_kills=2), counts(oom_kills=5), Conditions(oom_kills=3)),
        (counts(other_runs=2), counts(other_runs=1), Conditions(other_runs=2)),
    ],
)
def test_conditions_are_differences_of_counts(before, after, expected):
    assert make_conditions(before, after, Frequencies()) == expected


def write_frequency(root, cpu, khz, governor="powersave"):
    directory = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
    directory.mkdir(parents=True)
    (directory / "scaling_cur_freq").write_text(f"{khz}\n")
    (directory / "scaling_governor").write_text(f"{governor}\n")


def test_the_frequency_is_the_median_of_a_few_cpus_of_the_run(tmp_path):
    for cpu in range(16):
        write_frequency(tmp_path, cpu, 1_000_000 + cpu, "performance" if cpu == 8 else "powersave")
    root = DirectoryRoot(str(tmp_path))
    assert read_frequencies(root, CpuSet((3,))) == Frequencies(median_mhz=1000.003, governor="powersave")
    found = read_frequencies(root, CpuSet(range(16)))  # CPUs 0, 4, 8, 12
    assert found == Frequencies(median_mhz=1000.006, governor="performance, powersave")


@pytest.mark.parametrize("khz", ["", "<unknown>", "0"])
def test_an_unknown_frequency_is_none(khz, tmp_path):
    write_frequency(tmp_path, 0, khz)
    assert read_frequencies(DirectoryRoot(str(tmp_path)), CpuSet((0, 1))).median_mhz is None
    assert read_frequencies(DirectoryRoot(str(tmp_path / "none")), CpuSet((0,))) == Frequencies()


def test_the_root_of_this_machine_finds_the_same_counts(monkeypatch, tmp_path):
    monkeypatch.setenv("OMPBIND_RUNTIME_DIR", str(tmp_path))
    root = SystemRoot()
    for _ in range(2):  # the second reading uses what the first has kept
        kept, plain = read_counts(root, "x"), read_counts(DirectoryRoot("/"), "x")
        assert (kept.throttling is None, kept.oom_kills) == (plain.throttling is None, plain.oom_kills)
        assert (kept.throttling is not None) == has_quota()


PROCESSORS = {
    "ghw-i7-1270P": "12th Gen Intel(R) Core(TM) i7-1270P",
    "ghw-arm64-vm": "0x41 0xd0c",
    "rec-power8-smt8": "POWER8NVL (raw), altivec supported",
    "hwloc-20s390-2g6s4c": "version = 00, identification = 279F25, machine = 2817",
    "hwloc-2arm-2c": "ARMv7 Processor rev 1 (v7l)",
    "hwloc-256ia64-64n2s2c": "the architecture",
}


@pytest.mark.parametrize(
    "path", [p for p in recorded("dumps/*.tar.gz") if name_of(p) in PROCESSORS], ids=name_of
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


@pytest.mark.parametrize(("only_user", "inherited"), [(False, False), (False, True), (True, False)])
def test_counters_have_the_attributes_of_the_kernel_header(only_user, inherited):
    """In linux/perf_event.h: disabled, inherit, pinned, exclusive, exclude_user, exclude_kernel, ..."""
    event = CounterEvent(name="cycles", type=0, config=0x1122334455667788)
    event = event.replace(only_user=only_user, is_inherited=inherited)
    expected = 1 | inherited << 1 | only_user << 5 | inherited << 12
    attributes = make_attributes(event, is_big_endian=False)
    assert len(attributes) == 64
    assert struct.unpack("<IIQQQQQ", attributes[:48]) == (0, 64, event.config, 0, 0, 3, expected)
    flags = make_attributes(event, is_big_endian=True)[40:48]  # bit fields begin with the highest bit
    assert int("".join(f"{byte:08b}" for byte in flags)[::-1], 2) == expected


def test_events_without_a_counter_are_named_by_reason():
    failures = (("cpu-migrations", errno.EACCES), ("cycles", errno.ENOENT), ("instructions", errno.ENOENT))
    first, second = explain_missing(CounterSupport(events=(), failures=failures))
    assert "cpu-migrations:" in first
    assert "kernel.perf_event_paranoid=1" in first
    assert "cycles, instructions:" in second
    assert not explain_missing(CounterSupport(events=EVENTS, failures=()))
    (text,) = explain_missing(CounterSupport(events=(), failures=(("cycles", errno.EBUSY),)))
    assert text.endswith("Device or resource busy")
