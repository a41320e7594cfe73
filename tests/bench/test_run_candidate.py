"""What the record of a run says, from how its ranks exited."""

import pytest

from ompbind.bench.records import Conditions, Run, Status, Verification
from ompbind.bench.run_candidate import add_outcome
from ompbind.errors import LaunchError
from ompbind.execution.outcome import Outcome, RankExit, Usage
from ompbind.inspection.verdict import RankVerification, ThreadIssue, Verdict, VerificationResult
from ompbind.machine.read.linux_cgroup import Throttling
from ompbind.text import Severity

RUN = Run(candidate="default", number=3, round=1, started=1.0)
MIB = 1 << 20


def exited(rank, code=0, **changes):
    used = Usage(
        wall_s=1.0 + rank, user_s=0.5, system_s=0.25, max_rss_bytes=MIB, voluntary_switches=3,
        involuntary_switches=2,
    )  # fmt: skip
    return RankExit(**{"rank": rank, "pid": 100 + rank, "code": code, "usage": used, **changes})


def test_usage_is_added_up_over_ranks_and_wall_times_are_in_their_order():
    throttling = Throttling(cgroup="", periods=99, throttled_periods=3, throttled_s=0.5)
    run = add_outcome(RUN, Outcome(exits=(exited(1), exited(0)), throttling=throttling), None)
    assert run.conditions == Conditions(throttled_s=0.5, throttled_periods=3)
    assert run.wall_s == (1.0, 2.0)
    assert (run.user_s, run.system_s, run.max_rss_bytes, run.forced_switches) == (1.0, 0.5, 2 * MIB, 4)
    assert (run.exit_codes, run.status, run.reason) == ((0, 0), Status.OK, "")


def test_what_is_unknown_is_none():
    for exits in ((exited(0), exited(1, usage=Usage())), ()):
        assert add_outcome(RUN, Outcome(exits=exits), None).max_rss_bytes is None


@pytest.mark.parametrize(("outcome", "facts"), [
    (Outcome(exits=(), error=LaunchError("command not found: x")), "command not found: x"),
    (Outcome(exits=(exited(0, 143, stopped=True),), timed_out=True), "timeout|2.5 s"),
    (Outcome(exits=(exited(1, 3, last_lines=("", "bad\x1b[m", " ")), exited(0, 4))), "rank 1|code 3|: bad"),
    (Outcome(exits=(exited(0, 3, last_lines=("x" * 999,)),)), f"rank 0|code 3|{'x' * 200}"),
    (Outcome(exits=(exited(0, None, signal=9),), oom_kills=1), "rank 0|SIGKILL|memory ran out"),
])  # fmt: skip
def test_a_failed_run_has_a_reason_with_last_words(outcome, facts):
    run = add_outcome(RUN, outcome, 2.5)
    assert run.status == Status.FAILED
    assert all(fact in run.reason for fact in facts.split("|"))
    assert len(run.reason) < 300


def test_ranks_that_were_stopped_have_not_failed():
    assert add_outcome(RUN, Outcome(exits=(exited(0, 143, stopped=True),)), None).status == Status.OK


def verified(*severities):
    """The result of verification of some ranks: one issue of each, None for a rank without a sample."""
    ranks = []
    for rank, severity in enumerate(severities):
        issue = severity and ThreadIssue(code="outside", severity=severity, threads=1, text="moved")
        verdict = None if severity is None else Verdict(issues=(issue,) if issue else (), summary="")
        ranks.append(RankVerification(rank=rank, verdict=verdict))
    return VerificationResult(ranks=tuple(ranks), complete=False, stable=False, seen_s=0.1)


@pytest.mark.parametrize(("result", "verification", "status"), [
    (None, Verification.NOT_CHECKED, Status.OK),
    (verified(Severity.OK, Severity.WARNING), Verification.VERIFIED, Status.OK),
    (verified(Severity.OK, None), Verification.UNSEEN, Status.OK),
    (verified(Severity.WARNING, Severity.ERROR), Verification.VIOLATED, Status.INVALID),
])  # fmt: skip
def test_only_errors_of_verification_make_a_run_invalid(result, verification, status):
    run = add_outcome(RUN, Outcome(exits=(exited(0), exited(1)), verified=result), None)
    assert (run.verification, run.status) == (verification, status)
    assert run.reason == ("rank 1: moved" if status == Status.INVALID else "")


def test_a_failed_run_is_no_invalid_run():
    outcome = Outcome(exits=(exited(0, 3),), verified=verified(Severity.ERROR))
    run = add_outcome(RUN, outcome, None)
    assert (run.status, run.verification) == (Status.FAILED, Verification.VIOLATED)
    assert run.reason.startswith("rank 0 exited")
