"""Performance counters: how the kernel gets an event, and what is said of events without a counter."""

import errno
import struct

import pytest

from ompbind.bench.counters import EVENTS, CounterEvent, CounterSupport, explain_missing, make_attributes

EVENT = CounterEvent(name="cycles", type=0, config=0x1122334455667788)


@pytest.mark.parametrize("only_user", [False, True])
@pytest.mark.parametrize("is_inherited", [False, True])
def test_flags_are_the_bits_of_the_kernel_header(only_user, is_inherited):
    """In linux/perf_event.h: disabled, inherit, pinned, exclusive, exclude_user, exclude_kernel, ..."""
    event = EVENT.replace(only_user=only_user, is_inherited=is_inherited)
    expected = 1 | is_inherited << 1 | only_user << 5 | is_inherited << 12
    for order, name in ((False, "little"), (True, "big")):
        flags = make_attributes(event, is_big_endian=order)[40:48]
        bits = "".join(f"{byte:08b}" if order else f"{byte:08b}"[::-1] for byte in flags)
        assert int(bits[::-1], 2) == expected, name


def test_an_event_is_described_in_64_bytes():
    attributes = make_attributes(EVENT, is_big_endian=False)
    assert struct.unpack("<IIQQQQ", attributes[:40]) == (0, 64, EVENT.config, 0, 0, 3)
    assert len(attributes) == 64


def test_events_without_a_counter_are_named_by_reason():
    failures = (("cpu-migrations", errno.EACCES), ("cycles", errno.ENOENT), ("instructions", errno.ENOENT))
    first, second = explain_missing(CounterSupport(events=(), failures=failures))
    assert "cpu-migrations:" in first
    assert "kernel.perf_event_paranoid=1" in first
    assert "cycles, instructions:" in second
    assert "virtual machine" in second
    assert not explain_missing(CounterSupport(events=EVENTS, failures=()))


def test_an_unknown_error_has_the_text_of_the_system():
    (text,) = explain_missing(CounterSupport(events=(), failures=(("cycles", errno.EBUSY),)))
    assert text.endswith("Device or resource busy")
