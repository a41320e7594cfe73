"""What the record of a run says: how its ranks exited, the machine and its load."""

import os

import pytest

from ompbind.bench import conditions
from ompbind.bench.records import Conditions, Run, Status, Verification
from ompbind.bench.run_candidate import add_outcome
from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.execution.outcome import Outcome, RankExit, Usage
from ompbind.inspection.verdict import CpuUsage, RankVerification, ThreadIssue, Verdict, VerificationResult
from ompbind.machine.read import read_machine
from ompbind.machine.read.archive import ArchiveRoot
from ompbind.machine.read.linux_cgroup import Throttling
from ompbind.machine.read.root import DirectoryRoot
from ompbind.text import Severity
from tests.recordings import ABSENT, name_of, recorded

MIB = 1 << 20


def exited(rank, code=0, **changes):
    used = Usage(wall_s=1.0 + rank, user_s=0.5, system_s=0.25, max_rss_bytes=MIB, involuntary_switches=2)
    return RankExit(**{"rank": rank, "pid": 100 + rank, "code": code, "usage": used, **changes})


def add(*exits, **fields):
    run = Run(candidate="default", number=3, round=1, started=1.0)
    return add_outcome(run, Outcome(exits=exits, **fields), None)


def test_usage_is_added_up_over_ranks_and_wall_times_are_in_their_order():
    throttling = Throttling(cgroup="", periods=99, throttled_periods=3, throttled_s=0.5)
    run = add(exited(1), exited(0), throttling=throttling)
    assert run.conditions == Conditions(throttled_s=0.5, throttled_periods=3)
    assert run.wall_s == (1.0, 2.0)
    assert (run.user_s, run.system_s, run.max_rss_bytes, run.forced_switches) == (1.0, 0.5, 2 * MIB, 4)
    assert (run.exit_codes, run.status, run.reason) == ((0, 0), Status.OK, "")
    assert add(exited(0), exited(1, usage=Usage())).max_rss_bytes is None, "one is unknown"
    assert add(exited(0, 143, stopped=True)).status == Status.OK


def test_a_failed_run_has_a_reason_with_last_words():
    run = add(exited(0, 3, last_lines=("x" * 999,)))
    assert (run.status, run.reason) == (Status.FAILED, f"rank 0 exited with code 3; last lines: {'x' * 200}")
    assert "memory ran out" in add(exited(0, None, signal=9), oom_kills=1).reason
    assert add(error=LaunchError("no")).max_rss_bytes is None


def verified(*severities):
    """The result of verification of some ranks: one issue of each, None for a rank without a sample."""
    ranks = []
    for rank, severity in enumerate(severities):
        issue = severity and ThreadIssue(code="outside", severity=severity, threads=1, text="moved")
        verdict = None if severity is None else Verdict(issues=(issue,) if issue else (), summary="")
        ranks.append(RankVerification(rank=rank, verdict=verdict))
    return VerificationResult(ranks=tuple(ranks), complete=False, stable=False, seen_s=0.1)


@pytest.mark.parametrize(("code", "result", "verification", "status"), [
    (0, None, Verification.NOT_CHECKED, Status.OK),
    (0, verified(Severity.OK, Severity.WARNING), Verification.VERIFIED, Status.OK),
    (0, verified(Severity.OK, None), Verification.UNSEEN, Status.OK),
    (0, verified(Severity.WARNING, Severity.ERROR), Verification.VIOLATED, Status.INVALID),
    (3, verified(Severity.ERROR), Verification.VIOLATED, Status.FAILED),
])  # fmt: skip
def test_only_errors_of_verification_make_a_run_invalid(code, result, verification, status):
    run = add(exited(0, code), exited(1), verified=result)
    assert (run.verification, run.status) == (verification, status)
    reasons = {Status.OK: "", Status.INVALID: "rank 1: moved", Status.FAILED: "rank 0 exited with code 3"}
    assert run.reason == reasons[status]


def counts(at_s=0, cpu_s=0.0, own_s=0.0, **changes):
    """Counts of a machine with two CPUs: their CPU time, and that of the ranks."""
    usage = CpuUsage(at_s=at_s, cpus={0: cpu_s, 1: 0.0} if cpu_s else {}, processes={1: (own_s, 0.0)})
    return conditions.SystemCounts(**{"stolen_s": None, "other_runs": 0, "usage": usage, **changes})


@pytest.mark.parametrize(("before", "after", "expected"), [
    (counts(), counts(), Conditions()),
    (counts(stolen_s=1.0), counts(stolen_s=1.5), Conditions(stolen_s=0.5)),
    (counts(stolen_s=1.0), counts(stolen_s=0.9), Conditions(stolen_s=0.0)),
    (counts(0, 1.0), counts(2, 2.5, 0.5), Conditions(others_share=0.25)),
    (counts(other_runs=2), counts(other_runs=1), Conditions(other_runs=2)),
])  # fmt: skip
def test_conditions_are_differences_of_counts(before, after, expected):
    assert conditions.make_conditions(before, after, CpuSet((0, 1))) == expected


def test_the_stolen_time_of_the_machine_is_counted(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  0 0 0 0 0 0 0 250 0 0\ncpu0 0 0 0 0 0 0 0 250 0 0\n")
    found = [conditions.read_counts(DirectoryRoot(str(path)), "r") for path in (tmp_path, tmp_path / "proc")]
    assert [each.stolen_s for each in found] == [250 / os.sysconf("SC_CLK_TCK"), None]


PROCESSORS = {
    "ghw-i7-1270P": "12th Gen Intel(R) Core(TM) i7-1270P", "ghw-arm64-vm": "0x41 0xd0c",
    "rec-power8-smt8": "POWER8NVL (raw), altivec supported",
    "hwloc-20s390-2g6s4c": "version = 00, identification = 279F25, machine = 2817",
    "hwloc-2arm-2c": "ARMv7 Processor rev 1 (v7l)", "hwloc-256ia64-64n2s2c": "the architecture",
}  # fmt: skip
DUMPS = [path for path in recorded("dumps/*.tar.gz") if name_of(path) in PROCESSORS]


@pytest.mark.parametrize("path", DUMPS or [ABSENT], ids=name_of)
def test_names_the_processor_of_every_architecture(path):
    root = ArchiveRoot(path.read_bytes(), path.name)
    assert conditions.read_processor(root, "the architecture") == PROCESSORS[name_of(path)]


def test_the_hardware_is_this_machine_and_its_digest_is_of_the_topology_alone():
    machine = read_machine()
    hardware = conditions.read_hardware(machine)
    assert hardware.hostname
    assert hardware.processor
    assert (hardware.allowed, hardware.quota) == (str(machine.allowed), machine.quota)
    same, *others = (
        read_machine(f"synthetic:{text}")
        for text in ("pack:2 l3:2 core:4 pu:2", "pack:2 l3:2 core:4 pu:1", "pack:2 l3:4 core:2 pu:2")
    )
    limited = same.replace(allowed=CpuSet((0,)), quota=1.0, source="other")
    assert len({*map(conditions.make_topology_digest, (same, limited))}) == 1
    assert len({*map(conditions.make_topology_digest, (same, *others))}) == 3
