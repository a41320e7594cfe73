"""What is said of the threads of a run's ranks, and its place in the report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.errors import LaunchError
from ompbind.execution.outcome import Outcome, exit_code
from ompbind.inspection.verdict import RankVerified, ThreadIssue, Verdict, Verified
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.text import WIDTH
from ompbind.report.verification import MOST, render_verified, verified_record
from ompbind.severity import Severity
from tests.machines import Shape, make_machine

PLAN = make_plan(make_machine(Shape(packages=2, cores=64, smt=2, numbering="split")), Request(ranks=64))
GOOD = Verdict(issues=(), summary="all 3 threads may run on CPUs 0-1", processes=2, threads=3)


def issue(code, text="why", severity=Severity.ERROR):
    return ThreadIssue(code=code, severity=severity, threads=1, text=text)


def bad(*issues):
    return GOOD.replace(issues=issues or (issue("outside", "1 of 3 threads: somebody moved it"),), outside=1)


def seen(*verdicts, settled=True, stable=True, **more):
    ranks = tuple(
        RankVerified(rank=rank, verdict=verdict, seen_s=3.1 if verdict else None)
        for rank, verdict in enumerate(verdicts)
    )
    return Verified(ranks=ranks, settled=settled, stable=stable, seen_s=3.1, **more)


def said(verified, **options):
    return " ".join(render_verified(verified, PLAN, **options).split())


ONE = "verified: 1 rank, 3 threads, each on the CPUs of its rank"
LATER = "3 s after the start"
UNSEEN_ONE = "ended before it could be looked at; it was confined, and that read back, before it started"
UNSEEN = "ended before they could be looked at; they were confined, and that read back, before they started"


@pytest.mark.parametrize(
    ("verified", "line"),
    [
        (seen(GOOD), f"{ONE} {LATER}"),
        (
            seen(GOOD.replace(runtimes=("libgomp", "libiomp5")), GOOD.replace(runtimes=("libgomp",))),
            f"verified: 2 ranks, 6 threads (libgomp, libiomp5), each on the CPUs of its rank {LATER}",
        ),
        (seen(GOOD.replace(bound=2)), f"{ONE}, 2 of them bound to places {LATER}"),
        (seen(GOOD, stable=False).replace(seen_s=60.02), f"{ONE}; after 60 s threads still come and go"),
        (seen(GOOD, settled=False, stable=False), f"{ONE} when last seen"),
        (seen(GOOD, None, None), f"{ONE} {LATER}; ranks 1-2 {UNSEEN}"),
        (
            seen(None, None).replace(ranks=(RankVerified(rank=0), RankVerified(rank=1, hidden=True))),
            f"not verified: rank 0 {UNSEEN_ONE}; rank 1 could not be looked at: /proc does not show its "
            "threads here",
        ),
        (
            seen(GOOD.replace(issues=(issue("confined", "it did that", Severity.NOTE),))),
            f"{ONE} {LATER} ompbind: note: rank 0: it did that",
        ),
    ],
)
def test_one_line_says_that_all_is_well(verified, line):
    assert said(verified) == f"ompbind: {line}"
    assert said(verified, quiet=True) == ""


def test_a_problem_is_a_table_of_the_ranks_that_have_it_and_each_reason_once():
    text = render_verified(seen(GOOD, bad(), GOOD, bad(), None), PLAN, quiet=True)
    head, titles, first, second, reason = text.splitlines()
    assert head == "ompbind: warning: the threads of ranks 1,3 do not run as planned"
    assert titles.split() == ["rank", "CPUs", "threads", "outside", "narrowed", "stacked", "runtimes"]
    assert [line.split() for line in (first, second)] == [
        ["1", "2-3", "3", "1", "0", "0", "-"],
        ["3", "6-7", "3", "1", "0", "0", "-"],
    ]
    assert reason == "ompbind: ranks 1,3: 1 of 3 threads: somebody moved it"


def test_of_very_many_the_first_are_shown():
    verdicts = [bad(issue("outside", f"reason {number}")) for number in range(64)]
    lines = render_verified(seen(*verdicts), PLAN).splitlines()
    assert len(lines) == 2 + MOST + MOST + 1
    assert lines[-1] == "ompbind: ranks 10-63: 54 other reasons"


WORDS = st.text(st.characters(codec="utf-8"), max_size=200)
VERDICTS = st.none() | st.builds(
    lambda found, numbers, runtimes: Verdict(
        issues=tuple(found), summary="", threads=numbers[0], outside=numbers[1], narrowed=numbers[2],
        stacked=numbers[3], bound=numbers[4], runtimes=tuple(runtimes),
    ),
    st.lists(st.builds(issue, st.just("outside"), WORDS, st.sampled_from(list(Severity))), max_size=3),
    st.tuples(*[st.integers(0, 99_999)] * 5),
    st.lists(st.sampled_from(["libgomp", "libomp", "libiomp5"]), max_size=4),
)  # fmt: skip


@given(st.lists(VERDICTS, min_size=1, max_size=64), st.booleans(), st.booleans())
def test_whatever_is_said_fits_and_is_plain(verdicts, settled, stable):
    text = render_verified(seen(*verdicts, settled=settled, stable=settled and stable), PLAN)
    assert text
    for line in text.split("\n"):
        assert len(line) <= WIDTH or len(line.split()) <= 3, line
        assert all(sign.isprintable() or sign.isspace() for sign in line)


def test_the_record_tells_why_and_what_was_not_seen():
    record = verified_record(seen(bad(), None, strict=True))
    assert verified_record(None) is None
    first, second = record.pop("ranks")
    assert record == {"level": "problem", "settled": True, "calm": True, "seen_s": 3.1, "strict": True}
    assert first == {
        "rank": 0, "seen_s": 3.1, "level": "problem", "processes": 2, "threads": 3, "outside": 1,
        "narrowed": 0, "bound": 0, "stacked": 0, "runtimes": [], "memory": None,
        "text": "1 of 3 threads: somebody moved it",
        "findings": [
            {"code": "outside", "level": "problem", "threads": 1, "text": "1 of 3 threads: somebody moved it"}
        ],
    }  # fmt: skip
    assert (second["level"], second["threads"], second["findings"]) == (None, None, [])
    assert second["text"].startswith("ended before it could be looked at")


def test_problems_are_told_apart_by_rank_and_kind():
    verified = seen(bad(), GOOD, bad(issue("narrowed"), issue("confined", severity=Severity.NOTE)))
    assert verified.problems == {(0, "outside"), (2, "narrowed")}
    assert (verified.severity, seen(GOOD, None).severity) == (Severity.ERROR, Severity.OK)


def test_what_was_seen_does_not_decide_the_exit_code_but_an_error_does():
    assert exit_code(Outcome(exits=(), verified=seen(bad()))) == 0
    assert exit_code(Outcome(exits=(), verified=seen(bad()), error=LaunchError("x"))) == 125
