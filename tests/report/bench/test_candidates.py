"""The candidates of a session as a table, at every width."""

import pytest

from ompbind.bench.records import Candidate, Kind, Refusal
from ompbind.report.bench.table import Effort, render_candidates, render_effort
from ompbind.report.text import Screen

UNBOUND = Candidate(name="64 ranks, unbound", kind=Kind.UNBOUND, ranks=64)
DEFAULT = Candidate(
    name="64 ranks, default",
    kind=Kind.DEFAULT,
    ranks=64,
    threads=2,
    cpus=tuple(f"{2 * rank}-{2 * rank + 1}" for rank in range(64)),
    same=("64 ranks, smt=1, strategy=balanced", "64 ranks, smt=1, strategy=spread"),
)
LONG = Candidate(
    name="1 rank, mask=" + ",".join(map(str, range(0, 200, 3))),
    kind=Kind.VARIED,
    ranks=1,
    threads=67,
    cpus=(",".join(str(cpu + cpu % 7) for cpu in range(0, 200, 9)),),
)
REFUSALS = (
    Refusal(name="65 ranks, default", reason="65 ranks do not fit on 64 CPUs"),
    Refusal(name="65 ranks, smt=1", reason="65 ranks do not fit on 64 CPUs"),
    Refusal(name="1 rank, strategy=nodes", reason="this machine has no node domains"),
)


@pytest.mark.parametrize("width", [60, 80, 160])
def test_lines_fit(width):
    screen = Screen(width=width)
    text = render_candidates((UNBOUND, DEFAULT, LONG), REFUSALS, screen)
    effort = render_effort((UNBOUND, DEFAULT), Effort(rounds=40, same_work=False, budget_s=60), screen)
    assert max(map(len, f"{text}\n{effort}".splitlines())) <= width


def test_many_ranks_are_shortened_and_equal_reasons_are_one():
    lines = render_candidates((UNBOUND, DEFAULT), REFUSALS, Screen(width=160)).splitlines()
    assert lines[2] == (
        "64 ranks, default     64        2  0-1 | 2-3 | ... | 126-127"
        "  64 ranks, smt=1, strategy=balanced; 64 ranks, smt=1, strategy=spread"
    )
    assert lines[4:] == [
        "cannot run:",
        "  65 ranks, default; 65 ranks, smt=1: 65 ranks do not fit on 64 CPUs",
        "  1 rank, strategy=nodes: this machine has no node domains",
    ]


@pytest.mark.parametrize(("same_work", "runs"), [(False, 4 * 11 + 2 * 2 * 10), (True, 4 * 11 + 2 * 10)])
def test_numbers_of_ranks_that_are_not_compared_are_confirmed_each(same_work, runs):
    candidates = [UNBOUND.replace(ranks=ranks) for ranks in (1, 1, 2, 2)]
    text = render_effort(candidates, Effort(rounds=10, same_work=same_work), Screen(width=160))
    assert text.startswith(f"time: {runs} runs at most")
