"""The variables by which a rank, and whoever looks at it, knows its place."""

from collections.abc import Mapping

OMPBIND_RUN_ID = "OMPBIND_RUN_ID"
OMPBIND_RANK = "OMPBIND_RANK"
OMPBIND_CPUS = "OMPBIND_CPUS"
OMPBIND_RESERVED_CPUS = "OMPBIND_RESERVED_CPUS"
OMPBIND_WORKER_NAME = "OMPBIND_WORKER_NAME"
"""Its run, its number, its CPUs in order, those reserved."""

Variables = Mapping[str, str | None]
"""The variables of one rank that ompbind decides: value, or None for "unset"."""

SUPERVISOR_NAME = "rank-supervisor"
"""The name of the process that is the parent of all ranks; without "ompbind", which `pkill ompbind` kills."""


def find_rank(env: Mapping[str, str], run_id: str | None = None) -> int | None:
    """Return the rank whose variables these are, of one run or of any; None for none."""
    rank = env.get(OMPBIND_RANK, "")
    mine = run_id is None or env.get(OMPBIND_RUN_ID) == run_id
    return int(rank) if mine and rank.isdecimal() else None
