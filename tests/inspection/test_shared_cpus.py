"""Processes without a plan that share fewer CPUs than they could use."""

import pytest

from ompbind.inspection.load import MaskOrigin, MaskUser, count_busy, find_shared_cpus
from tests.inspection.test_judge import ONE_EACH, TORCH, cpus, process

CLOSE = {"OMP_PROC_BIND": "close"}
PARENT = process("0", TORCH, pid=50, **CLOSE)
SET_ITSELF = process("0", TORCH, pid=50)  # with os.environ: its children show the variable


def users(origin, number=4, mask="0", allowed="0-3", busy=1, **more):
    """Return workers with the mask of a parent; without an origin, each has narrowed itself."""
    workers = [process(mask, TORCH, pid=60 + i, parent=50, **more) for i in range(number)]
    return [
        MaskUser(
            process=worker,
            cpus=cpus(mask),
            origin=MaskOrigin(process=origin or worker, allowed=cpus(allowed)),
            busy=busy,
        )
        for worker in workers
    ]


CASES = [
    (users(PARENT), "error", "in python (50) with OMP_PROC_BIND=close, libgomp bound the initial thread"),
    (users(PARENT), "error", "4 busy processes are restricted to CPU 0, although CPUs 0-3 are allowed: in"),
    (users(PARENT, 6), "error", "(62), python (63) and 2 more"),
    (users(process("0", TORCH, pid=50, **ONE_EACH)), "error", "'ompbind rebind 50' gives it the CPUs"),
    (users(SET_ITSELF, **CLOSE), "error", "in python (50) with OMP_PROC_BIND=close"),
    (users(None, 2, **CLOSE), "error", "'ompbind rebind 60 61' gives each its own CPUs"),
    (users(process("0", pid=50, name="taskset -c")), "warning", "taskset -c (50): the process or its"),
    (
        users(process("0", pid=50, name="bash"), **CLOSE),
        "warning",
        "if this is not intended",
    ),  # it inherits what bash has
    (users(SET_ITSELF, busy=0), "note", "4 processes are restricted"),
    (users(PARENT, busy=0), "note", "OMP_PROC_BIND=close"),
    (users(PARENT, 1, busy=3), "", ""),  # the verdict of the process itself has this
    (users(PARENT, 2, mask="0-1"), "", ""),  # a place for each
    (users(PARENT, 3, mask="0-1"), "error", "3 busy processes"),
    (users(PARENT, allowed="0"), "", ""),
    (users(PARENT, allowed=""), "", ""),  # unknown
]


@pytest.mark.parametrize(("users", "severity", "text"), CASES)
def test_processes_on_fewer_cpus_than_they_could_use(users, severity, text):
    issues = list(find_shared_cpus(users))
    assert [str(issue.severity) for issue in issues] == ([severity] if severity else [])
    assert text in "".join(issue.text for issue in issues)


@pytest.mark.parametrize(
    ("before", "now", "used_s", "busy"),
    [("R", "R", 0.0, 1), ("S", "R", 0.02, 0), ("S", "S", 0.03, 1), ("R", "S", 0.0, 0), ("", "R", 0.0, 1),
     ("", "S", 9.0, 0)],
)  # fmt: skip
def test_threads_that_wait_for_work_are_not_busy(before, now, used_s, busy):
    read = process("0", pid=5)
    first, second = (
        read.replace(threads=(read.threads[0].replace(state=state, busy_s=busy_s),))
        for state, busy_s in ((before, 9.0), (now, 9.0 + used_s))
    )
    assert count_busy(second, [first] if before else [], 0.5) == busy
