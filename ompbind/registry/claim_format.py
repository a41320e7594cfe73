"""The text of a claim: a run with its CPUs, as lines of "key value".

    ompbind-run 1
    run serve
    pid 4711
    held 0-7
    restarts 000000000000
    rank 0 0-3
    rank 1 4-7

The number of restarts changes while the run lives. It always has the same digits, so that it is written in
place: a reader finds a valid claim at any moment. `claim_parsing` reads the text.
"""

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.model import MAX_CPUS
from ompbind.planning.occupancy import LiveRun, RunIdentity
from ompbind.planning.plan import Plan
from ompbind.text import clean_name

HEAD = "ompbind-run 1"
"""The first line of every claim, with the version of the format."""

TEXT_LIMIT = 1 << 17
"""The longest text, in bytes: what a rank on every CPU of the largest machine needs."""

RANKS_LIMIT = MAX_CPUS
"""The most ranks that are listed: one for each CPU of the largest machine."""

FIELDS = {
    "run": "run_id",
    "pid": "pid",
    "pid_space": "pid_space",
    "started": "started",
    "inside": "parent_run_id",
    "held": "claimed",
    "avoided": "avoided",
    "bind": "bind",
    "configuration": "configuration",
    "division": "division",
    "wanted": "wanted",
}
"""Key of a line → field of `LiveRun`; lines of ranks and of restarts are not included."""

RESTARTS = "restarts "
"""The start of the line with the number of restarts."""

_RESTART_DIGITS = 12


def make_live_run(plan: Plan, identity: RunIdentity) -> LiveRun:
    """Return the run that is about to start, as other runs will see it."""
    if identity.placement_index is None:
        ranks = tuple((placement.rank, placement.cpuset) for placement in plan.placements)
    else:
        ranks = ((identity.rank, plan.placements[identity.placement_index].cpuset),)
    return make_waiting_run(identity).replace(
        ranks=ranks,
        claimed=plan.used | plan.reserved,
        avoided=plan.avoided,
        bind=str(plan.request.bind),
        configuration=plan.request.configuration.digest,
        division="" if identity.placement_index is None else make_division(plan),
    )


def make_division(plan: Plan) -> str:
    """Return a short hash of the CPUs and devices of all ranks of a plan; "" for a plan of one rank.

    The hash of numbers is equal in all processes.
    """
    shares = tuple(
        (placement.cpus, tuple(placement.service_cpus), tuple(device.index for device in placement.devices))
        for placement in plan.placements
    )
    return f"{hash(shares) & 0xFFFF_FFFF_FFFF_FFFF:x}" if len(shares) > 1 else ""


def make_waiting_run(identity: RunIdentity, wanted: CpuSet = EMPTY) -> LiveRun:
    """Return a run that claims no CPUs, as other runs will see it while it waits for the `wanted` CPUs."""
    return LiveRun(
        run_id=clean_name(identity.run_id),
        pid=identity.pid,
        uid=identity.uid,
        started=identity.started,
        ranks=(),
        claimed=EMPTY,
        parent_run_id=clean_name(identity.parent_run_id),
        pid_space=identity.pid_space,
        wanted=wanted,
    )


def make_text(run: LiveRun) -> str:
    """Return the text of a run.

    Lines for single ranks are left out if there are too many (thousands of ranks).
    """
    head = [HEAD, *(f"{key} {getattr(run, name)}" for key, name in FIELDS.items())]
    head.append(RESTARTS + render_restarts(run.restarts))
    ranks = [f"rank {rank} {cpus}" for rank, cpus in run.ranks]
    text = "\n".join([*head, *ranks, ""])
    fits = len(ranks) <= RANKS_LIMIT and len(text.encode()) <= TEXT_LIMIT
    return text if fits else "\n".join([*head, ""])


def render_restarts(count: int) -> str:
    """Return a number of restarts with all its digits, as it is written in place."""
    return f"{min(count, 10**_RESTART_DIGITS - 1):0{_RESTART_DIGITS}d}"


def find_restarts(text: str) -> int:
    """Return the offset, in bytes, of the number of restarts in the text of a claim."""
    return text.encode().index(f"\n{RESTARTS}".encode()) + 1 + len(RESTARTS)
