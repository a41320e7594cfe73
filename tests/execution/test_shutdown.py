"""How a run is stopped; tests pass the time as an argument."""

import signal

import pytest

from ompbind.execution.shutdown import MIN_READER_TIMEOUT_S, Shutdown

GRACE_S = 5.0


@pytest.fixture
def shutdown():
    return Shutdown(GRACE_S)


@pytest.mark.parametrize("stopped", [False, True])
def test_the_timeout_is_reported_unless_the_run_was_stopped_before(shutdown, stopped):
    if stopped:
        shutdown.request(signal.SIGINT, 0.0)
    assert (shutdown.note_timeout(60.0), shutdown.timed_out) == (not stopped, not stopped)


@pytest.mark.parametrize(("first", "sent"), [
    (signal.SIGINT, [(signal.SIGINT, 5), (signal.SIGTERM, 6), (signal.SIGKILL, None), (None, None)]),
    (signal.SIGTERM, [(signal.SIGTERM, 5), (signal.SIGKILL, None), (None, None), (None, None)]),
])  # fmt: skip
def test_each_request_sends_the_next_signal_and_a_repeated_one_none(shutdown, first, sent):
    for now, expected in enumerate(sent):
        assert (shutdown.request(first, now), shutdown.due_at) == expected
        assert shutdown.request(first, now + 0.4) is None


@pytest.mark.parametrize(("requests", "is_abandoned"), [
    ([(0.0, True)], True), ([(0.0, False), (0.1, True)], False), ([(0.0, False), (9.0, True)], True),
])  # fmt: skip
def test_a_request_with_no_process_left_abandons_output(shutdown, requests, is_abandoned):
    for now, idle in requests:
        shutdown.note_request(now, idle=idle)
    assert shutdown.output_abandoned is is_abandoned


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
    (impatient := Shutdown(0.0)).note_request(0.0, idle=False)
    impatient.check_reader(0, 0.0)
    assert impatient.reader_give_up_at == MIN_READER_TIMEOUT_S, "it always has this time"
