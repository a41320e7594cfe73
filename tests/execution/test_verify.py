"""Long verification: the step between samples, and what is reported of a series of results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.execution.sampler import FIRST_S, LONGEST_S, LONGEST_STEP_S, AffinitySampler
from ompbind.inspection.findings import Findings
from ompbind.inspection.verdict import RankVerification, ThreadIssue, Verdict, VerificationResult
from ompbind.text import Severity


def begin():
    sampler = AffinitySampler({0: (CpuSet((0,)), 1)}, "run")
    sampler.begin(0.0)
    sampler.complete = True
    return sampler


@given(st.lists(st.tuples(st.floats(0, 0.2), st.booleans()), max_size=30))
def test_later_samples_use_less_than_a_thousandth_of_a_cpu(samples):
    sampler = begin()
    for cpu_s, unconfirmed in samples:
        now = sampler.sample_at
        sampler.schedule_next(now, cpu_s, unconfirmed=unconfirmed)
        step_s = sampler.sample_at - now
        least_s = (20 if unconfirmed and now < LONGEST_S else 1000) * cpu_s
        assert least_s - 1e-6 <= step_s <= max(LONGEST_STEP_S, least_s) + 1e-6


def test_the_step_doubles_to_half_a_minute_and_begins_again_to_confirm_an_issue():
    sampler, steps = begin(), []
    for number in range(15):
        now = sampler.sample_at
        sampler.schedule_next(now, 0.0, unconfirmed=number in (10, 11, 12))
        steps.append(round(sampler.sample_at - now, 1))
    assert now == pytest.approx(FIRST_S + sum(steps[:-1]))
    assert steps == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 0.5, 1, 2, 4, 8]


def result(*codes, severity=Severity.ERROR):
    issues = tuple(ThreadIssue(code=code, severity=severity, threads=1, text=code) for code in codes)
    rank = RankVerification(rank=0, verdict=Verdict(issues=issues, summary="fine"), seen_s=1.0)
    return VerificationResult(ranks=(rank,), complete=True, stable=True, seen_s=1.0)


def codes(verified):
    return [issue.code for issue in verified.ranks[0].verdict.issues]


def test_an_issue_is_confirmed_by_two_samples_in_a_row():
    findings, confirmed = Findings(), []
    for found in ((), ("narrowed",), (), ("narrowed", "outside"), ("outside",), ("oversubscribed",)):
        verified = findings.confirm(result(*found))
        confirmed.append((codes(verified), bool(findings.unconfirmed)))
    assert confirmed == [
        ([], False), ([], True), ([], False), ([], True), (["outside"], False), (["oversubscribed"], False),
    ]  # fmt: skip
    assert codes(Findings().confirm(result("narrowed"), at_once=[0])) == ["narrowed"]


def test_a_result_is_reported_when_an_error_comes_or_goes():
    findings = Findings()
    moved, both = result("outside"), result("outside", "oversubscribed")
    noted, new = (result(code, severity=Severity.NOTE) for code in ("crowded", "shared"))
    series = [
        (result(), True), (result(), False), (moved, True), (moved, False), (result(), True), (moved, True),
        (both, True), (moved, False), (both, False),  # the load may come again
        (noted, True),  # the error is over
        (result(), False), (noted, False), (new, True),
    ]  # fmt: skip
    assert [findings.should_report(verified) for verified, _ in series] == [wanted for _, wanted in series]
    assert not findings.should_report(both, ended=True), "at the end these errors are no news"
    assert findings.should_report(result("outside", "stacked"), ended=True)


def test_the_result_of_the_run_has_errors_that_are_over():
    findings = Findings()
    findings.should_report(result("outside", "narrowed"))
    (rank,) = findings.add_past_errors(result("narrowed")).ranks
    assert [issue.text for issue in rank.verdict.issues] == ["narrowed"]
    assert [(attempt, issue.text) for attempt, issue in rank.past] == [
        (1, "outside (not in the last sample)")
    ]
    assert Findings().add_past_errors(result()) == result()
    noted = findings.add_past_errors(result("narrowed", severity=Severity.NOTE))
    assert [issue.code for _, issue in noted.ranks[0].past] == ["outside", "narrowed"], "a note is no error"
    again = result().replace(ranks=(RankVerification(rank=0, attempt=2),))
    (rank,) = findings.add_past_errors(again).ranks
    assert [issue.text for _, issue in rank.past] == ["outside (in attempt 1)", "narrowed (in attempt 1)"]
