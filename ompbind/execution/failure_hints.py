"""What the end of a rank hints at, where that helps: a row for each status that has a usual cause.

The same status tells of a signal whether it ended the rank itself or something inside it, of which shells
tell with 128 + signal.
"""

from signal import Signals

from ompbind.execution.outcome import Exited, Outcome, signal_name
from ompbind.record import Record

OUT_OF_MEMORY = (
    "memory ran out, and the kernel killed a process of this cgroup: raise the memory limit"
    " (of the container, of the job), or start fewer ranks"
)
"""Said of ranks that failed while the kernel's out-of-memory killer was at work in their cgroup."""


class Rule(Record):
    """The hint for one status; with `oom` only for runs in which the kernel killed for want of memory.

    A rule without a status is for every failure that no rule before it is for.
    """

    hint: str
    status: int | None = None
    oom: bool = False


RULES = (
    Rule(status=126, hint="something that it ran was found but cannot be executed: its permissions,"
         " its first line (#!), or another architecture"),
    Rule(status=127, hint="something that it ran was not found: a command (see PATH) or a shared library"
         " (see LD_LIBRARY_PATH)"),
    Rule(status=128 + Signals.SIGILL, hint="an instruction that this processor does not have: was it built"
         " for another one (AVX-512, AMX, SVE)?"),
    Rule(status=128 + Signals.SIGBUS, hint="shared memory or a mapped file could not be had: is /dev/shm full"
         " (see 'df /dev/shm'; --shm-size of containers), or was the file cut short?"),
    Rule(status=128 + Signals.SIGSEGV, hint="with OpenMP, often too little stack: try --env OMP_STACKSIZE=64M"
         " for its threads, and 'ulimit -s unlimited' for the initial thread"),
    Rule(status=128 + Signals.SIGKILL, hint=OUT_OF_MEMORY, oom=True),
    Rule(status=128 + Signals.SIGKILL, hint="not by ompbind: somebody's kill -9, a batch system at its limit,"
         " or the kernel when the machine's memory ran out (see 'dmesg')"),
    Rule(status=128 + Signals.SIGXCPU, hint="it has used all the CPU time that it may (see 'ulimit -t')"),
    Rule(status=128 + Signals.SIGXFSZ, hint="a file has become as large as it may (see 'ulimit -f')"),
    Rule(status=128 + Signals.SIGSYS, hint="a system call that is forbidden here, by a seccomp filter of the"
         " container or sandbox"),
    Rule(hint=OUT_OF_MEMORY, oom=True),
)  # fmt: skip
"""Every hint there is; the first rule that holds is taken."""


def find_hint(exited: Exited, outcome: Outcome) -> str:
    """Return what probably ended a rank of a run and what to look at, "" where nothing is worth saying.

    Nothing is said of a rank that ended well, nor of one that ompbind itself stopped.
    """
    if not exited.failed:
        return ""
    fitting = (rule for rule in RULES if rule.status in (None, exited.status))
    rule = next((rule for rule in fitting if outcome.oom_kills > 0 or not rule.oom), None)
    if rule is None:
        return ""
    if exited.signal is None and rule.status is not None and rule.status > 128:
        return f"exit code {rule.status} of a shell means {signal_name(rule.status - 128)}: {rule.hint}"
    return rule.hint
