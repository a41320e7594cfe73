"""What other processes use of the CPUs of ranks, and the result of --verify as text and JSON."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.execution.outcome import Outcome, exit_code
from ompbind.inspection import verdict as verdict_
from ompbind.inspection.verdict import OthersLoad, RankVerification, ThreadIssue, Verdict, VerificationResult
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.verification import render_verified
from ompbind.text import Severity
from tests.machines import Shape, make_machine

CPUS = CpuSet.from_list


def usage(at_s, *cpus_s, **processes):
    """A reading: the times of CPUs from 0, and (own, reaped) seconds of processes p1, p2, …"""
    times = {int(name[1:]): pair for name, pair in processes.items()}
    return verdict_.CpuUsage(at_s=at_s, cpus=dict(enumerate(cpus_s)), processes=times)


@pytest.mark.parametrize(("before", "after", "used_s"), [
    (usage(0, 1, 1), usage(10, 9, 1), 8.0),  # no process of the rank has run
    (usage(0, 1, 1, p1=(2, 0)), usage(10, 9, 1, p1=(7, 0)), 3.0),
    (usage(0, 1, 1), usage(10, 9, 1, p1=(7, 0)), 1.0),  # it has started since
    (usage(0, 1, 1, p1=(2, 1)), usage(10, 9, 1, p1=(2, 6)), 3.0),  # it has waited for a child
    (usage(0, 1, 1, p1=(2, 1), p2=(3, 0)), usage(10, 9, 1, p1=(2, 6)), 6.0),  # whose 3 s were known
    (usage(0, 1), usage(10, 9), None),  # CPU 1 was offline
])  # fmt: skip
def test_time_of_ranks_and_of_children_they_waited_for_is_not_of_others(before, after, used_s):
    found = verdict_.measure_others(before, after, CPUS("0-1"))
    assert found == (OthersLoad(cpus=CPUS("0-1"), span_s=10, used_s=used_s) if used_s else OthersLoad())


PLAN = make_plan(make_machine(Shape(packages=2, cores=64, smt=2, numbering="split")), Request(ranks=64))
GOOD = Verdict(issues=(), summary="all 3 threads are allowed on CPUs 0-1", processes=2, threads=3)


def issue(code, text="why", severity=Severity.ERROR):
    return ThreadIssue(code=code, severity=severity, threads=1, text=text)


def bad(*issues):
    return GOOD.replace(issues=issues or (issue("outside", "1 of 3 threads: taskset moved it"),), outside=1)


def make_verified(*verdicts, complete=True, stable=True, seen_s=3.1, **more):
    ranks = tuple(
        RankVerification(rank=rank, verdict=verdict, seen_s=3.1 if verdict else None)
        for rank, verdict in enumerate(verdicts)
    )
    return VerificationResult(ranks=ranks, complete=complete, stable=stable, seen_s=seen_s, **more)


def render(verified, **options):
    return " ".join(render_verified(verified, PLAN, **options).split())


NOTE = GOOD.replace(issues=(issue("crowded", "it did that", Severity.NOTE),))
WARNED = GOOD.replace(issues=(issue("oversubscribed", "31 threads", Severity.WARNING),))
UNSEEN = (RankVerification(rank=0), RankVerification(rank=1, hidden=True))
UNCONFIRMED = ((0, issue("outside")), (1, issue("outside").replace(threads=4)))


LOADS = ("0-1", 5.0, 10.0), ("0-1", 5.0, 10.0), ("2", 20.0, 20.0), ("3", 0.1, 10.0)
LOADS = [OthersLoad(cpus=CPUS(cpus), used_s=used_s, span_s=span_s) for cpus, used_s, span_s in LOADS]
DISTURBED = make_verified(*[GOOD] * 4, ended=True)
pairs = zip(DISTURBED.ranks, LOADS, strict=True)
DISTURBED = DISTURBED.replace(ranks=tuple(rank.replace(others=load) for rank, load in pairs))
RUNTIMES = GOOD.replace(runtimes=("libgomp", "libiomp5")), GOOD.replace(runtimes=("libgomp",))


@pytest.mark.parametrize(("verified", "facts"), [
    (make_verified(GOOD), "verified: 1 rank, 3 threads|3 s after the start"),
    (make_verified(*RUNTIMES), "2 ranks, 6 threads (libgomp, libiomp5)"),
    (make_verified(GOOD.replace(bound=2)), "2 of them bound to the compute CPUs"),
    (make_verified(GOOD, stable=False, seen_s=60.02), "still change after 60 s"),
    (make_verified(GOOD, complete=False, samples=3, ended=True, run_s=12), "for 3.1 of 12.0 s, 3 samples"),
    (make_verified(GOOD, samples=12, ended=True, seen_s=2460, run_s=2500), "for 41 of 42 min, 12 samples"),
    (make_verified(GOOD, ended=True, most_threads=18), "1 rank, at most 18 threads, each on"),
    (make_verified(GOOD, ended=True, unconfirmed=UNCONFIRMED), "5 threads were outside in the last sample"),
    (make_verified(GOOD, ended=True, unconfirmed=((0, WARNED.issues[0]),)), "rank 0: 31 threads"),
    (DISTURBED, "other processes used 50 % of CPUs 0-2 while ranks 0-2 ran"),
    (make_verified(GOOD, None, None), "verified: 1 rank|ranks 1-2 exited before"),
    (make_verified().replace(ranks=UNSEEN), "not verified: rank 0 exited|rank 1 could not be sampled"),
    (make_verified(NOTE), "ompbind: note: rank 0: it did that"),
])  # fmt: skip
def test_a_result_without_errors_is_a_sentence(verified, facts):
    text = render(verified)
    assert all(fact in text for fact in facts.split("|")), text
    assert render(verified, quiet=True) == ""


def test_errors_of_the_whole_run_are_summarized_at_the_end():
    shared = (issue("outside"), issue("oversubscribed"), issue("crowded", severity=Severity.NOTE))
    past = bad(issue("unbound").replace(is_over=True))
    for verdicts, facts in (
        ((GOOD, bad(*shared)), ["rank 1 had errors (outside, oversubscribed) in the last sample"]),
        ((GOOD, past), ["rank 1 did not always run as planned (unbound)"]),
        ((bad(), past), ["rank 0 had errors (outside)", "rank 1 did not always run as planned"]),
    ):
        verified = make_verified(*verdicts, samples=12, ended=True, run_s=9)
        assert all(fact in render(verified) for fact in ["not verified in 3.1 of 9.0 s, 12 samples", *facts])
        assert render(verified, quiet=True) == "", "the errors were printed when they were found"


def test_errors_are_a_table_of_ranks_and_each_reason_once():
    text = render_verified(make_verified(GOOD, bad(), GOOD, bad(), None), PLAN, quiet=True)
    head, _, first, second, reason = text.splitlines()
    assert "ranks 1,3 do not run as planned" in head
    assert [line.split()[:4] for line in (first, second)] == [["1", "2-3", "3", "1"], ["3", "6-7", "3", "1"]]
    assert reason == "ompbind: ranks 1,3: 1 of 3 threads: taskset moved it"


def test_errors_are_pairs_of_rank_and_code_and_do_not_decide_the_exit_code():
    verified = make_verified(bad(), GOOD, bad(issue("narrowed"), issue("confined", severity=Severity.NOTE)))
    assert verified.errors == {(0, "outside"), (2, "narrowed")}
    assert (verified.severity, make_verified(GOOD, None).severity) == (Severity.ERROR, Severity.OK)
    assert exit_code(Outcome(exits=(), verified=verified)) == 0
    assert exit_code(Outcome(exits=(), verified=verified, error=LaunchError("x"))) == 125
