"""The result of --verify as text and JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.errors import LaunchError
from ompbind.execution.outcome import Outcome, exit_code
from ompbind.inspection.verdict import RankVerification, ThreadIssue, Verdict, VerificationResult
from ompbind.openmp.binding import Bind
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.text import WIDTH
from ompbind.report.verification import MOST, render_verified, verified_record
from ompbind.text import Severity
from tests.machines import Shape, make_machine

PLAN = make_plan(make_machine(Shape(packages=2, cores=64, smt=2, numbering="split")), Request(ranks=64))
GOOD = Verdict(issues=(), summary="all 3 threads are allowed on CPUs 0-1", processes=2, threads=3)


def issue(code, text="why", severity=Severity.ERROR):
    return ThreadIssue(code=code, severity=severity, threads=1, text=text)


def bad(*issues):
    return GOOD.replace(issues=issues or (issue("outside", "1 of 3 threads: taskset moved it"),), outside=1)


def make_verified(*verdicts, complete=True, stable=True, **more):
    ranks = tuple(
        RankVerification(rank=rank, verdict=verdict, seen_s=3.1 if verdict else None)
        for rank, verdict in enumerate(verdicts)
    )
    return VerificationResult(ranks=ranks, complete=complete, stable=stable, seen_s=3.1, **more)


def render(verified, **options):
    return " ".join(render_verified(verified, PLAN, **options).split())


ONE = "verified: 1 rank, 3 threads, each on the CPUs of its rank"
LATER = ", 3 s after the start"
NOT_SAMPLED_ONE = "exited before ompbind could check its threads; at the start it was bound to its CPUs"
NOT_SAMPLED = "exited before ompbind could check their threads; at the start they were bound to their CPUs"


@pytest.mark.parametrize(
    ("verified", "line"),
    [
        (make_verified(GOOD), f"{ONE}{LATER}"),
        (
            make_verified(
                GOOD.replace(runtimes=("libgomp", "libiomp5")), GOOD.replace(runtimes=("libgomp",))
            ),
            f"verified: 2 ranks, 6 threads (libgomp, libiomp5), each on the CPUs of its rank{LATER}",
        ),
        (make_verified(GOOD.replace(bound=2)), f"{ONE}, 2 of them bound to places{LATER}"),
        (
            make_verified(GOOD, stable=False).replace(seen_s=60.02),
            f"{ONE}, but their number or masks still change after 60 s",
        ),
        (
            make_verified(GOOD, complete=False, stable=False, samples=3, ended=True),
            ONE.replace("verified", "verified for 3.1 s, 3 samples"),
        ),
        (
            make_verified(GOOD, samples=12, ended=True).replace(seen_s=2460.0),
            ONE.replace("verified", "verified for 41 min, 12 samples"),
        ),
        (
            make_verified(
                GOOD.replace(issues=(issue("crowded", "", Severity.NOTE),)), samples=1, ended=True
            ).replace(seen_s=9000.0),
            ONE.replace("verified", "verified for 2.5 h, 1 sample"),
        ),
        (make_verified(GOOD, None, None), f"{ONE}{LATER}; ranks 1-2 {NOT_SAMPLED}"),
        (
            make_verified(None, None).replace(
                ranks=(RankVerification(rank=0), RankVerification(rank=1, hidden=True))
            ),
            f"not verified: rank 0 {NOT_SAMPLED_ONE}; rank 1 could not be sampled: its threads are not "
            "visible in /proc",
        ),
        (
            make_verified(GOOD.replace(issues=(issue("confined", "it did that", Severity.NOTE),))),
            f"{ONE}{LATER} ompbind: note: rank 0: it did that",
        ),
    ],
)
def test_a_result_without_errors_is_a_sentence(verified, line):
    assert render(verified) == f"ompbind: {line}"
    assert render(verified, quiet=True) == ""


def test_errors_of_the_whole_run_are_summarized_at_the_end():
    head = "ompbind: not verified in 3.1 s, 12 samples: "
    shared = (issue("outside"), issue("oversubscribed"), issue("crowded", severity=Severity.NOTE))
    verified = make_verified(GOOD, bad(*shared), samples=12, ended=True)
    assert render(verified) == f"{head}rank 1 had errors (outside, oversubscribed) in the last sample"
    past = bad(issue("unbound", "why").replace(is_over=True))
    text = "the threads of rank 1 did not always run as planned (unbound)"
    assert render(make_verified(GOOD, past, samples=12, ended=True)) == f"{head}{text}"
    both = render(make_verified(bad(), past, samples=12, ended=True))
    assert both == f"{head}rank 0 had errors (outside) in the last sample; {text}"
    assert render(verified, quiet=True) == "", "the errors were printed when they were found"


def test_warnings_and_notes_are_printed_with_their_severity():
    found = issue("oversubscribed", "31 threads", Severity.WARNING), issue("crowded", "it", Severity.NOTE)
    text = render(make_verified(GOOD.replace(issues=found)))
    assert text.endswith("ompbind: warning: rank 0: 31 threads ompbind: note: rank 0: it")


PLACED = make_plan(make_machine(Shape(packages=1, cores=4, smt=1)), Request(ranks=1, bind=Bind.THREAD))


@pytest.mark.parametrize(
    ("bound", "runtimes", "text"),
    [
        (3, ("libgomp",), ", 3 of them bound to places"),
        (0, ("libgomp",), ", none of them bound to a place"),
        (0, (), ""),
    ],
)
def test_the_sentence_says_how_many_threads_are_bound(bound, runtimes, text):
    verified = make_verified(GOOD.replace(bound=bound, runtimes=runtimes))
    sentence = " ".join(render_verified(verified, PLACED).split())
    assert sentence.endswith(f"each on the CPUs of its rank{text}, 3 s after the start")


def test_errors_are_a_table_of_ranks_and_each_reason_once():
    text = render_verified(make_verified(GOOD, bad(), GOOD, bad(), None), PLAN, quiet=True)
    head, titles, first, second, reason = text.splitlines()
    assert head == "ompbind: warning: the threads of ranks 1,3 do not run as planned"
    assert titles.split() == ["rank", "CPUs", "threads", "outside", "narrowed", "stacked", "runtimes"]
    assert [line.split() for line in (first, second)] == [
        ["1", "2-3", "3", "1", "0", "0", "-"],
        ["3", "6-7", "3", "1", "0", "0", "-"],
    ]
    assert reason == "ompbind: ranks 1,3: 1 of 3 threads: taskset moved it"


def test_the_first_of_many_errors_are_shown():
    verdicts = [bad(issue("outside", f"reason {number}")) for number in range(64)]
    lines = render_verified(make_verified(*verdicts), PLAN).splitlines()
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
def test_text_fits_and_is_printable(verdicts, complete, stable):
    text = render_verified(make_verified(*verdicts, complete=complete, stable=complete and stable), PLAN)
    assert text
    for line in text.split("\n"):
        assert len(line) <= WIDTH or len(line.split()) <= 3, line
        assert all(char.isprintable() or char.isspace() for char in line)


def test_the_record_has_reasons_and_ranks_that_were_not_sampled():
    record = verified_record(make_verified(bad(), None, strict=True, samples=5))
    assert verified_record(None) is None
    first, second = record.pop("ranks")
    assert record == {
        "level": "problem",
        "settled": True,
        "calm": True,
        "seen_s": 3.1,
        "samples": 5,
        "strict": True,
    }
    assert first == {
        "rank": 0, "seen_s": 3.1, "level": "problem", "processes": 2, "threads": 3, "outside": 1,
        "narrowed": 0, "bound": 0, "stacked": 0, "runtimes": [], "memory": None,
        "text": "1 of 3 threads: taskset moved it",
        "findings": [
            {"code": "outside", "level": "problem", "threads": 1, "text": "1 of 3 threads: taskset moved it"}
        ],
    }  # fmt: skip
    assert (second["level"], second["threads"], second["findings"]) == (None, None, [])
    assert second["text"].startswith("exited before ompbind could check its threads")


def test_errors_are_pairs_of_rank_and_code():
    verified = make_verified(bad(), GOOD, bad(issue("narrowed"), issue("confined", severity=Severity.NOTE)))
    assert verified.errors == {(0, "outside"), (2, "narrowed")}
    assert (verified.severity, make_verified(GOOD, None).severity) == (Severity.ERROR, Severity.OK)


def test_the_result_does_not_decide_the_exit_code_but_an_error_does():
    assert exit_code(Outcome(exits=(), verified=make_verified(bad()))) == 0
    assert exit_code(Outcome(exits=(), verified=make_verified(bad()), error=LaunchError("x"))) == 125
