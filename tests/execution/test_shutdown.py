"""How a run is stopped; tests pass the time as an argument."""

import signal
import time

import pytest

from ompbind.errors import LaunchError
from ompbind.execution.shutdown import MIN_READER_TIMEOUT_S, Shutdown

GRACE_S = 5.0


@pytest.fixture
def shutdown():
    return Shutdown(GRACE_S, 60.0)


def test_the_timeout_is_reported_once(shutdown):
    now = time.monotonic()
    assert not shutdown.note_timeout(now)
    assert shutdown.note_timeout(now + 61)
    assert shutdown.timed_out
    assert not shutdown.note_timeout(now + 62)


def test_a_run_that_was_stopped_before_does_not_time_out(shutdown):
    now = time.monotonic()
    shutdown.escalation.request(signal.SIGINT, now)
    assert not shutdown.note_timeout(now + 61)
    assert not shutdown.timed_out


def test_signals_are_due_after_the_grace_period(shutdown):
    assert shutdown.escalation.request(signal.SIGTERM, 0.0) == signal.SIGTERM
    assert shutdown.take_due_signal(GRACE_S - 1) is None
    assert shutdown.take_due_signal(GRACE_S) == signal.SIGKILL
    assert shutdown.take_due_signal(GRACE_S * 9) is None


@pytest.mark.parametrize(
    ("requests", "output_abandoned"),
    [
        ([(0.0, False)], False),
        ([(0.0, True)], True),
        ([(0.0, False), (0.1, True)], False),
        ([(0.0, False), (9.0, True)], True),
    ],
)
def test_a_request_with_no_process_left_abandons_output(shutdown, requests, output_abandoned):
    """Two signals within a short time are one request: some programs signal a child, then its group."""
    for now, idle in requests:
        shutdown.note_request(now, idle=idle)
    assert shutdown.output_abandoned is output_abandoned


def test_output_is_abandoned_only_if_the_reader_reads_nothing(shutdown):
    shutdown.check_reader(0, 0.0)
    shutdown.check_reader(0, 99.0)
    assert not shutdown.output_abandoned, "no request to stop"
    shutdown.note_request(100.0, idle=False)
    shutdown.check_reader(10, 100.0)
    shutdown.check_reader(20, 100.0 + GRACE_S)  # it has read some bytes
    shutdown.check_reader(20, 100.0 + GRACE_S + 1)
    assert not shutdown.output_abandoned
    shutdown.check_reader(20, 100.0 + GRACE_S * 2)
    assert shutdown.output_abandoned


def test_a_reader_has_a_minimum_time():
    shutdown = Shutdown(0.0, None)
    shutdown.note_request(0.0, idle=False)
    shutdown.check_reader(0, 0.0)
    shutdown.check_reader(0, MIN_READER_TIMEOUT_S / 2)
    assert not shutdown.output_abandoned
    assert MIN_READER_TIMEOUT_S in shutdown.deadlines


def test_the_first_error_and_signal_stay(shutdown):
    first = LaunchError("first")
    for error in (first, LaunchError("second")):
        shutdown.note_error(error)
    shutdown.note_start_interrupted(signal.SIGINT)
    shutdown.note_start_interrupted(signal.SIGTERM)
    assert (shutdown.error, shutdown.start_interrupted_by) == (first, signal.SIGINT)
