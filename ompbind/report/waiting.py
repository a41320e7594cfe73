"""Live runs for which another run waits, as text."""

from collections.abc import Sequence

from ompbind.cpuset import named
from ompbind.planning.occupancy import NAMED_RUNS
from ompbind.registry.run_info import RunInfo


def render_blockers(infos: Sequence[RunInfo]) -> str:
    """Return which runs use CPUs, or wait for them; ranks of one job are named once.

    Example: "run serve (pid 4711, user alice) uses CPUs 0-3; run job (pid 4712, user bob) waits for CPUs 0-7"
    """
    jobs = list({(info.run.run_id, info.user): info for info in reversed(infos)}.values())[::-1]
    texts = [_render(info) for info in jobs[:NAMED_RUNS]]
    more = [f"{len(jobs) - NAMED_RUNS} more"] if len(jobs) > NAMED_RUNS else []
    return "; ".join(texts + more)


def _render(info: RunInfo) -> str:
    run = info.run
    action = f"waits for {named('CPU', run.wanted)}" if run.wanted else f"uses {named('CPU', run.claimed)}"
    return f"run {run.run_id} (pid {run.pid}, user {info.user}) {action}"
