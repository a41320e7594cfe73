"""Wait with --wait: try again when other runs or the allowed CPUs have changed, which is read each second.

The first steps are shorter, for runs that exit soon.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ompbind.cli.console import print_message
from ompbind.cpuset import CpuSet, named
from ompbind.errors import PlanError
from ompbind.planning.other_runs import NAMED_RUNS, LiveRun
from ompbind.planning.request import Sharing
from ompbind.procfs.reader import read_affinity
from ompbind.registry.registry import Registry, RunInfo, read_run_info

T = TypeVar("T")

_FIRST_STEP_S, _LONGEST_STEP_S = 0.05, 1.0


def call_when_free(
    attempt: Callable[[], T | None],
    own: LiveRun,
    wanted: CpuSet,
    *,
    sharing: Sharing,
    limit_s: float,
    prints: bool,
) -> T:
    """Return the result of an attempt that succeeds; an attempt returns None if other runs prevent it.

    Other users see that the run waits for the `wanted` CPUs. With `prints`, a message names the runs that use
    them. Raises PlanError after the time limit, and ClaimError if claims cannot be read or written.
    """
    with Registry(sharing, own) as registry:
        ticket = registry.register_waiting(wanted)
    try:
        give_up_at, step_s = time.monotonic() + limit_s, _FIRST_STEP_S
        tried: tuple[tuple[LiveRun, ...], CpuSet] | None = None
        while True:
            with Registry(sharing, own) as registry:
                others = registry.occupied
            if (seen := (others, read_affinity(0))) != tried:
                tried, step_s = seen, _FIRST_STEP_S
                if (found := attempt()) is not None:
                    return found
            left_s = give_up_at - time.monotonic()
            blockers = [run for run in others if not run.claimed.isdisjoint(wanted)]
            text = render_blockers(read_run_info(blockers)) or "another run has just released them"
            if left_s <= 0:
                hint = "wait longer, or name other CPUs with --mask"
                raise PlanError(f"the CPUs are not free after {limit_s:g} s: {text}", hint=hint)
            if prints:
                print_message(f"waiting for CPUs: {text}")
                prints = False
            time.sleep(min(step_s, left_s))
            step_s = min(2 * step_s, _LONGEST_STEP_S)
    finally:
        if ticket:
            ticket.release()


def render_blockers(infos: Sequence[RunInfo]) -> str:
    """Return which runs use CPUs, or wait for them; ranks of one job are named once.

    Example: "run serve (pid 4711, user alice) uses CPUs 0-3; run job (pid 4712, user bob) waits for CPUs 0-7"
    """
    jobs = list({(info.run.run_id, info.user): info for info in reversed(infos)}.values())[::-1]
    texts = []
    for run, user in ((info.run, info.user) for info in jobs[:NAMED_RUNS]):
        what = f"waits for {named('CPU', run.wanted)}" if run.wanted else f"uses {named('CPU', run.claimed)}"
        texts.append(f"run {run.run_id} (pid {run.pid}, user {user}) {what}")
    more = [f"{len(jobs) - NAMED_RUNS} more"] if len(jobs) > NAMED_RUNS else []
    return "; ".join(texts + more)
