"""How a run is stopped, with a clock of our own."""

import signal
import time

import pytest

from ompbind.errors import LaunchError
from ompbind.execution.shutdown import LEAST_PATIENCE_S, Shutdown

GRACE_S = 5.0


@pytest.fixture
def shutdown():
    return Shutdown(GRACE_S, 60.0)


def test_time_is_up_once(shutdown):
    now = time.monotonic()
    assert not shutdown.begin_timeout(now)
    assert shutdown.begin_timeout(now + 61)
    assert shutdown.timed_out
    assert not shutdown.begin_timeout(now + 62)


def test_a_run_that_was_asked_to_end_before_has_not_timed_out(shutdown):
    now = time.monotonic()
    shutdown.escalation.ask(signal.SIGINT, now)
    assert not shutdown.begin_timeout(now + 61)
    assert not shutdown.timed_out


def test_rungs_are_taken_when_they_are_due(shutdown):
    assert shutdown.escalation.ask(signal.SIGTERM, 0.0) is signal.SIGTERM
    assert shutdown.take_due_rung(GRACE_S - 1) is None
    assert shutdown.take_due_rung(GRACE_S) is signal.SIGKILL
    assert shutdown.take_due_rung(GRACE_S * 9) is None


@pytest.mark.parametrize(
    ("requests", "given_up"),
    [
        ([(0.0, False)], False),
        ([(0.0, True)], True),
        ([(0.0, False), (0.1, True)], False),
        ([(0.0, False), (9.0, True)], True),
    ],
)
def test_a_request_that_finds_nothing_left_gives_up_the_output(shutdown, requests, given_up):
    """Unless it is the same request again: some signal a child, then its group."""
    for now, idle in requests:
        shutdown.note_request(now, idle=idle)
    assert shutdown.given_up is given_up


def test_only_a_reader_that_takes_nothing_is_given_up(shutdown):
    shutdown.watch_reader(0, 0.0)
    shutdown.watch_reader(0, 99.0)
    assert not shutdown.given_up, "nobody has asked the run to end"
    shutdown.note_request(100.0, idle=False)
    shutdown.watch_reader(10, 100.0)
    shutdown.watch_reader(20, 100.0 + GRACE_S)  # it has taken some
    shutdown.watch_reader(20, 100.0 + GRACE_S + 1)
    assert not shutdown.given_up
    shutdown.watch_reader(20, 100.0 + GRACE_S * 2)
    assert shutdown.given_up


def test_a_reader_has_some_time_however_short_the_grace_is():
    shutdown = Shutdown(0.0, None)
    shutdown.note_request(0.0, idle=False)
    shutdown.watch_reader(0, 0.0)
    shutdown.watch_reader(0, LEAST_PATIENCE_S / 2)
    assert not shutdown.given_up
    assert LEAST_PATIENCE_S in shutdown.deadlines


def test_the_first_reason_stays(shutdown):
    first = LaunchError("first")
    for error in (first, LaunchError("second")):
        shutdown.fail(error)
    shutdown.note_cut(signal.SIGINT)
    shutdown.note_cut(signal.SIGTERM)
    assert (shutdown.error, shutdown.cut_short) == (first, signal.SIGINT)
