"""The environment variables of a rank: its identity."""

from collections.abc import Mapping, MutableMapping
from typing import TypeAlias

from ompbind.text import whole_number

OMPBIND_RUN_ID = "OMPBIND_RUN_ID"
OMPBIND_RANK = "OMPBIND_RANK"
OMPBIND_CPUS = "OMPBIND_CPUS"
OMPBIND_RESERVED_CPUS = "OMPBIND_RESERVED_CPUS"
OMPBIND_SERVICE_CPUS = "OMPBIND_SERVICE_CPUS"
OMPBIND_NUM_THREADS = "OMPBIND_NUM_THREADS"
OMPBIND_WORKER_NAME = "OMPBIND_WORKER_NAME"
"""The run, the rank, its CPUs in thread order, its reserved and its service CPUs, the threads of each of its
processes, a name for log files."""

OMPBIND_GROUP = "OMPBIND_GROUP"
OMPBIND_GROUP_RANK = "OMPBIND_GROUP_RANK"
OMPBIND_GROUP_SIZE = "OMPBIND_GROUP_SIZE"
"""The group of the rank in a run with groups, its number in the group, and the number of ranks there."""

NAMES_OF_GROUPS = (OMPBIND_GROUP, OMPBIND_GROUP_RANK, OMPBIND_GROUP_SIZE)
"""The variables of a group, which a rank of a run without groups must not inherit."""

OMPBIND_RANK_DEVICES = "OMPBIND_RANK_DEVICES"
OMPBIND_NICS = "OMPBIND_NICS"
"""The devices of the rank, as "gpu:0,nic:1"; its network interfaces as drivers call them, as "mlx5_0"."""

NAMES_OF_DEVICES = (OMPBIND_RANK_DEVICES, OMPBIND_NICS)
"""The variables that name devices, and that a rank of another run must not inherit."""

OMPBIND_ATTEMPT = "OMPBIND_ATTEMPT"  # how often the rank was started so far, this start included

RANK_VARIABLES = tuple(value for name, value in sorted(globals().items()) if name.startswith("OMPBIND_"))
"""All of these variables."""

Variables: TypeAlias = Mapping[str, str | None]
"""The variables of one rank that ompbind sets (value) or removes (None)."""

SUPERVISOR_NAME = "rank-supervisor"
"""The name of the process that is the parent of all ranks; without "ompbind", which `pkill ompbind` kills."""

_RANK_LIMIT = 1 << 24  # of global ranks; a larger number is no rank, and would make huge sets


def apply_variables(variables: Variables, env: MutableMapping[str, str]) -> None:
    """Set and remove variables in an environment, in place."""
    for name, value in variables.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value


def find_rank(env: Mapping[str, str], run_id: str | None = None) -> int | None:
    """Return the rank that an environment belongs to, in this run or in any run; None if it is no rank."""
    rank = env.get(OMPBIND_RANK)
    is_of_run = run_id is None or env.get(OMPBIND_RUN_ID) == run_id
    return whole_number(rank, _RANK_LIMIT) if is_of_run else None


def find_attempt(env: Mapping[str, str]) -> int:
    """Return which start of its rank an environment belongs to, counted from 1; 1 if that is unknown."""
    return whole_number(env.get(OMPBIND_ATTEMPT)) or 1
