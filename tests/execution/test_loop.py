"""The loop of the supervisor, with real pipes: what wakes it up, and in which order functions are called."""

import os
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


def test_descriptors_come_before_deadlines_and_one_that_is_ignored_meanwhile_is_left_out():
    loop, called, pipes = Loop(), [], [os.pipe(), os.pipe()]
    deadline = partial(called.append, "deadline")

    def handle(own, other):
        called.append(own)
        loop.ignore(other)
        loop.call_at(NOW, deadline)

    for (own, writer), (other, _) in (pipes, pipes[::-1]):
        loop.listen(own, partial(handle, own, other))
        os.write(writer, b"x")
    loop.turn()
    assert (len(called), called[1]) == (2, "deadline")
    (ignored,) = {pipe[0] for pipe in pipes} - {called[0]}
    loop.listen(ignored, deadline)  # an error if it is still known
    for number in (*pipes[0], *pipes[1]):
        os.close(number)
