"""What other processes use of the CPUs of ranks, and the result of --verify as text and JSON."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.execution.outcome import Outcome, RankExit, exit_code
from ompbind.inspection import verdict as verdict_
from ompbind.inspection.verdict import (
    OthersLoad,
    RankVerification,
    State,
    ThreadIssue,
    Unseen,
    Verdict,
    VerificationResult,
)
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.verification import render_verified, verified_record
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
HIDDEN, MISSING = (RankVerification(rank=1, unseen=why) for why in (Unseen.HIDDEN, Unseen.NOT_STARTED))
AT_START = RankVerification(rank=0)
HIDES = "not seen: /proc does not show the threads of rank 1"
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
    (make_verified(None, None, ended=True), "verified at the start of each rank: ranks 0-1 were on"),
    (make_verified().replace(ranks=(AT_START, MISSING)), "start of each rank|; rank 1 was not started"),
    (make_verified(NOTE), "ompbind: note: rank 0: it did that"),
])  # fmt: skip
def test_a_result_without_errors_is_a_sentence(verified, facts):
    text = render(verified)
    assert all(fact in text for fact in facts.split("|")), text
    assert text.rpartition("ompbind: ")[2].startswith("verified") or not verified.ended, "the last line"
    assert render(verified, quiet=True) == ""


SHARED = bad(issue("outside"), issue("oversubscribed"), issue("crowded", severity=Severity.NOTE))
NOT_AS_PLANNED = "ompbind: not as planned, seen for 3.1 of 9.0 s, 12 samples: "


UNBOUND = issue("unbound")


def checked(rank, verdict=GOOD, **more):
    return RankVerification(rank=rank, verdict=verdict, **more)


@pytest.mark.parametrize(("ranks", "text"), [
    ((checked(0), checked(1, SHARED)), "rank 1 had errors (outside, oversubscribed) in the last sample"),
    ((checked(0, past=((1, UNBOUND),)),), "rank 0 had errors (unbound) before the last sample"),
    ((checked(0, None, attempt=3, past=((2, UNBOUND),)),), "rank 0 had errors (unbound) in attempt 2"),
    (
        (checked(0, past=((1, UNBOUND),)), HIDDEN, checked(2, bad())),
        "rank 2 had errors (outside) in the last sample; rank 0 had errors (unbound) before the last sample;"
        " /proc does not show the threads of rank 1",
    ),
])  # fmt: skip
def test_errors_of_the_whole_run_are_summarized_at_the_end(ranks, text):
    verified = make_verified(samples=12, ended=True, run_s=9, failed="rank 2 exited with code 7")
    verified = verified.replace(ranks=ranks)
    assert render(verified, quiet=True) == f"{NOT_AS_PLANNED}{text}; rank 2 exited with code 7"


@pytest.mark.parametrize(("ranks", "state", "text"), [
    ((AT_START, HIDDEN), State.NOT_SEEN, f"{HIDES}; verified at the start of each rank: rank "),
    ((checked(0), HIDDEN), State.NOT_SEEN, f"{HIDES}; verified for 3.1 of 9.0 s, 12 samples: 1 rank"),
    ((HIDDEN, checked(2, unseen=Unseen.HIDDEN)), State.NOT_SEEN, HIDES.replace("rank 1", "ranks 1-2")),
    ((checked(0), MISSING), State.OK, "verified for"),
    ((MISSING,), State.NOT_SEEN, "not seen: no rank was started: no files"),
    ((), State.NOT_SEEN, "not seen: no rank was started: no files"),
])  # fmt: skip
def test_ranks_that_were_not_seen_are_no_proof(ranks, state, text):
    verified = make_verified(samples=12, ended=True, run_s=9, strict=True).replace(ranks=ranks)
    if state is State.NOT_SEEN and HIDDEN not in ranks:
        verified = verified.replace(failure="no rank was started: no files")
    assert render(verified).startswith(f"ompbind: {text}")
    assert ("not started" in render(verified)) == (MISSING in ranks and state is State.OK)
    assert (render(verified, quiet=True) == "") == (state is State.OK)
    assert (verified.state, verified.violation is None) == (state, state is State.OK)
    record = verified_record(verified)
    assert (record["state"], bool(record["reason"])) == (state, state is State.NOT_SEEN)
    assert [rank["state"] for rank in record["ranks"]] == [rank.state for rank in ranks]


def test_errors_are_a_table_of_ranks_and_each_reason_once():
    text = render_verified(make_verified(GOOD, bad(), GOOD, bad(), None), PLAN, quiet=True)
    head, _, first, second, reason = text.splitlines()
    assert "ranks 1,3 do not run as planned" in head
    assert [line.split()[:4] for line in (first, second)] == [["1", "2-3", "3", "1"], ["3", "6-7", "3", "1"]]
    assert reason == "ompbind: ranks 1,3: 1 of 3 threads: taskset moved it"


WRONG = make_verified(bad(), GOOD, bad(issue("narrowed"), issue("confined", severity=Severity.NOTE)))
STRICT = WRONG.replace(strict=True)
UNSEEN = make_verified(strict=True).replace(ranks=(AT_START, HIDDEN))
FINE, FAILED = RankExit(rank=0, pid=1, code=0), RankExit(rank=1, pid=2, code=7)
KILLED = RankExit(rank=2, pid=3, code=None, signal=15, stopped=True)


@pytest.mark.parametrize(("verified", "exits", "more", "code"), [
    (WRONG, (FINE,), {}, 0), (STRICT, (FINE,), {}, 125), (UNSEEN, (FINE,), {}, 125),
    (STRICT, (FINE, FAILED), {}, 7), (UNSEEN, (FINE, FAILED), {}, 7),
    (STRICT, (KILLED,), {"stop_requested": True}, 143), (STRICT.replace(stopped=True), (KILLED,), {}, 125),
    (STRICT.replace(stopped=True), (KILLED, FAILED), {}, 7),
    (STRICT, (KILLED,), {"timed_out": True}, 124), (STRICT, (FINE, KILLED), {"until": frozenset({0})}, 125),
    (STRICT, (FINE,), {"start_interrupted_by": 15}, 143), (WRONG, (FINE,), {"error": LaunchError("x")}, 125),
    (make_verified(GOOD, None, strict=True), (FINE,), {}, 0),
    (make_verified(GOOD, strict=True, unconfirmed=UNCONFIRMED), (FINE,), {}, 0),
])  # fmt: skip
def test_the_exit_code_is_that_of_a_failed_rank_before_that_of_strict(verified, exits, more, code):
    assert exit_code(Outcome(exits=exits, verified=verified, **more)) == code
