"""The notes of a plan on the CPU quota of the cgroup: what the quota limits, and what exceeds it."""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet, count
from ompbind.planning.plan import Note, Plan

QUOTA_RANKS = "quota-ranks"
"""The code of the note on more ranks than CPUs in the CPU quota."""


def explain_quota(plan: Plan) -> Iterator[Note]:
    """Warn of more ranks or threads than CPUs in the CPU quota, and of threads that it limits."""
    placements = plan.placements
    throttling = find_throttling(plan)
    limited = CpuSet(placement.threads for placement in placements if placement.threads < len(placement.cpus))
    if limited and plan.request.threads is None and not any(note.code == QUOTA_RANKS for note in throttling):
        text = f"{_describe_quota(plan)}: threads per rank limited to {limited}"
        yield Note(code="quota", text=text, warning=True)
    yield from throttling


def find_throttling(plan: Plan) -> list[Note]:
    """Return the notes on more ranks and on more threads than CPUs in the CPU quota."""
    quota, placements, outside = plan.machine.quota, plan.placements, plan.request.outside_ranks
    notes: list[Note] = []
    if quota is None:
        return notes
    ranks = len(placements) + outside
    threads = sum(placement.threads for placement in placements) + outside * placements[0].threads
    if ranks > max(quota, 1):
        text = (
            f"{_describe_quota(plan)}, which is too little for {count(ranks, 'rank')}: they will be throttled"
        )
        text += " (start fewer ranks, or raise the quota)"
        notes.append(Note(code=QUOTA_RANKS, text=text, warning=True))
    if threads > max(quota, ranks):
        text = f"{_describe_quota(plan)}: {threads} threads will be throttled (lower --threads)"
        notes.append(Note(code="quota", text=text, warning=True))
    return notes


def _describe_quota(plan: Plan) -> str:
    return f"the CPU quota of the cgroup is {plan.machine.quota:g}"
