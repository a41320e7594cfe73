"""The deadlines of the loop of the supervisor; test_groups.py has its descriptors."""

import time
from functools import partial

from ompbind.execution.loop import NOW, Loop


def test_a_deadline_can_be_moved_cancelled_and_set_to_now():
    loop, called, begun = Loop(), [], time.monotonic()
    functions = {name: partial(called.append, name) for name in ("moved", "late", "cancelled", "now")}
    for function in functions.values():
        loop.call_at(begun + 0.05, function)
    loop.call_at(begun + 300, functions["moved"])
    loop.call_at(None, functions["cancelled"])
    loop.call_at(NOW, functions["now"])
    loop.turn()
    assert (called, time.monotonic() - begun < 0.05) == (["now"], True)
    loop.turn()
    assert (called, time.monotonic() - begun >= 0.05) == (["now", "late"], True)
    loop.call_at(NOW, functions["moved"])
    loop.turn()
    loop.turn(0)
    assert called == ["now", "late", "moved"]


def test_a_deadline_that_another_one_cancels_in_the_same_turn_is_not_called():
    loop, called = Loop(), []
    second = partial(called.append, "second")
    loop.call_at(NOW, lambda: loop.call_at(None, second))
    loop.call_at(NOW + 1, second)
    loop.turn()
    assert called == []
