"""What happens on the machine during a run: differences of counts, and frequencies of CPUs."""

import pytest

from ompbind.bench.conditions import (
    Frequencies,
    SystemCounts,
    SystemRoot,
    has_quota,
    make_conditions,
    read_counts,
    read_frequencies,
)
from ompbind.bench.records import Conditions
from ompbind.cpuset import CpuSet
from ompbind.machine.sources.linux.cgroup import Throttling
from ompbind.machine.sources.root import DirectoryRoot


def counts(throttled=None, **changes):
    throttling = None
    if throttled is not None:
        throttling = Throttling(
            cgroup="", periods=99, throttled_periods=throttled, throttled_s=throttled / 10
        )
    values = {"throttling": throttling, "stolen_s": None, "oom_kills": None, "other_runs": 0}
    return SystemCounts(**{**values, **changes})


CASES = [
    (counts(), counts(), Conditions()),
    (counts(5), counts(8), Conditions(throttled_s=pytest.approx(0.3), throttled_periods=3)),
    (counts(5), counts(), Conditions()),
    (counts(stolen_s=1.0), counts(stolen_s=1.5), Conditions(stolen_s=0.5)),
    (counts(stolen_s=1.0), counts(stolen_s=0.9), Conditions(stolen_s=0.0)),
    (counts(oom_kills=2), counts(oom_kills=5), Conditions(oom_kills=3)),
    (counts(other_runs=2), counts(other_runs=1), Conditions(other_runs=2)),
]


@pytest.mark.parametrize(("before", "after", "expected"), CASES)
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
    assert root.read("proc/self/no-such-file") is None
