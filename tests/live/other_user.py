"""Functions that run as another user in a child process: user 65534, if the tests run as root."""

import multiprocessing
import os

NOBODY = 65534


def become_nobody():
    """Become an unprivileged user for good."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def as_user(uid):
    """Return the words before a command that run it as a user, and as no other group."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


def fork_with_pipe(function, *args):
    """Run a function in a child with one end of a pipe; return the other end and the child.

    Locks and queues of multiprocessing would need /dev/shm.
    """
    context = multiprocessing.get_context("fork")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=function, args=(child_end, *args), daemon=True)
    process.start()
    child_end.close()
    return parent_end, process


def start_as_nobody(function, *args):
    """Run a function in a child, as another user if possible; return the pipe to it and the child.

    The child sends the result, and exits after the next message.
    """

    def work(pipe):
        become_nobody()
        pipe.send(function(*args))
        pipe.recv()

    return fork_with_pipe(work)


def finish(pipe, process):
    """Let a child exit."""
    pipe.send(None)
    process.join(60)
    pipe.close()


def call_as_nobody(function, *args):
    """Return the result of a function that another user calls, who may not read modules that it imports."""
    pipe, process = start_as_nobody(function, *args)
    result = pipe.recv()
    finish(pipe, process)
    return result
