"""Hints on why a rank failed: a row for each exit status that has a usual cause.

A status of 128 + signal means that the signal killed the rank itself, or a command in a shell.
"""

from signal import Signals

from ompbind.execution.outcome import Outcome, RankExit, signal_name
from ompbind.record import Record

OUT_OF_MEMORY = (
    "memory ran out, and the kernel killed a process of this cgroup: raise the memory limit"
    " (of the container, of the job), or start fewer ranks"
)
"""The hint for ranks that failed while the kernel's out-of-memory killer killed processes of their cgroup."""


class FailureHint(Record):
    """The hint for one status, None for any; with `oom` only if the out-of-memory killer was active."""

    hint: str
    status: int | None = None
    oom: bool = False


FAILURE_HINTS = (
    FailureHint(status=126, hint="a command was found but cannot be executed: check its permissions,"
         " its first line (#!) and its architecture"),
    FailureHint(status=127, hint="a command (see PATH) or a shared library (see LD_LIBRARY_PATH)"
         " was not found, or a script has Windows line ends"),
    FailureHint(status=128 + Signals.SIGILL, hint="this CPU does not support an instruction of the program:"
         " check whether it was built for another CPU (AVX-512, AMX, SVE)"),
    FailureHint(status=128 + Signals.SIGBUS, hint="shared memory or a mapped file was not available: check"
         " whether /dev/shm is full ('df /dev/shm', --shm-size of containers) or a file was truncated"),
    FailureHint(status=128 + Signals.SIGSEGV, hint="with OpenMP often a stack overflow: try"
         " --env OMP_STACKSIZE=64M for its threads and 'ulimit -s unlimited' for the initial thread"),
    FailureHint(status=128 + Signals.SIGKILL, hint=OUT_OF_MEMORY, oom=True),
    FailureHint(status=128 + Signals.SIGKILL, hint="not sent by ompbind; possible senders: a user"
         " ('kill -9'), a batch system if the job reached a limit, the kernel if memory ran out"
         " (see 'dmesg')"),
    FailureHint(status=128 + Signals.SIGXCPU, hint="the limit on CPU time was reached (see 'ulimit -t')"),
    FailureHint(status=128 + Signals.SIGXFSZ, hint="the limit on file size was reached (see 'ulimit -f')"),
    FailureHint(status=128 + Signals.SIGSYS, hint="a system call is forbidden by a seccomp filter of the"
         " container or sandbox"),
    FailureHint(hint=OUT_OF_MEMORY, oom=True),
)  # fmt: skip
"""All hints; the first that applies is used."""


def find_hint(rank_exit: RankExit, outcome: Outcome) -> str:
    """Return the probable cause of a rank's failure and what to check; "" if unknown.

    A rank that succeeded, or that ompbind stopped, has no hint.
    """
    if not rank_exit.failed:
        return ""
    candidates = (row for row in FAILURE_HINTS if row.status in (None, rank_exit.status))
    row = next((row for row in candidates if outcome.oom_kills > 0 or not row.oom), None)
    if row is None:
        return ""
    if rank_exit.signal is None and row.status is not None and row.status > 128:
        return f"exit code {row.status} of a shell means {signal_name(row.status - 128)}: {row.hint}"
    return row.hint
