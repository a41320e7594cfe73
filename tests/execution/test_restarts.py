"""Which failed ranks start again, and when; the clock is a number here."""

import pytest

from ompbind.execution.outcome import RankExit, Usage
from ompbind.execution.restarts import RestartPolicy, Restarts

POLICY = RestartPolicy()


def failure(rank=0, attempt=1, code=3, ran_s=0.0):
    usage = Usage(wall_s=ran_s)
    return RankExit(rank=rank, pid=100 + attempt, code=code, attempt=attempt, usage=usage)


@pytest.mark.parametrize(("limit", "attempt", "code", "requested", "refusal"), [
    (None, 10**6, 3, False, ""), (2, 2, 3, False, ""), (2, 3, 3, False, "after 3 attempts"),
    (0, 1, 3, False, "after 1 attempt"), (None, 1, 126, False, "after exit code 126"),
    (None, 1, 127, False, "after exit code 127"), (None, 1, 3, True, "after a signal from you"),
])  # fmt: skip
def test_refusals(limit, attempt, code, requested, refusal):
    last = failure(attempt=attempt, code=code)
    text = Restarts().schedule(RestartPolicy(limit=limit), last, 0.0, requested=requested)
    starts = f"attempt {attempt + 1} starts in 1 s"
    assert text == (f"it does not start again {refusal}" if refusal else starts)


@pytest.mark.parametrize(("ran_s", "waits_s"), [
    ([0] * 9, [1, 2, 4, 8, 16, 32, 60, 60, 60]), ([599] * 4, [1, 2, 4, 8]), ([600] * 4, [1, 1, 1, 1]),
    ([0, 0, 0, 600, 0, 0], [1, 2, 4, 1, 2, 4]), ([700, 0, 0], [1, 2, 4]),
])  # fmt: skip
def test_waits_double_until_an_attempt_was_healthy(ran_s, waits_s):
    restarts, found = Restarts(), []
    for attempt, seconds in enumerate(ran_s, 1):
        last = failure(attempt=attempt, ran_s=seconds)
        restarts.schedule(POLICY, last, 0.0, requested=False)
        found.append(restarts.waiting[0])
        restarts.note_start(last)
    assert found == waits_s
