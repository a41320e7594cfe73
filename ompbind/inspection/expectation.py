"""What a plan says of the threads of a rank, as far as masks, places and memory can be compared with it.

A thread is *narrowed* when its mask is less than what its rank has, and *outside* when it is something else.
"""

from collections.abc import Mapping, Sequence

from ompbind.cpuset import CpuSet
from ompbind.openmp.binding import Bind
from ompbind.openmp.places import parse_places
from ompbind.openmp.runtimes import SPINS
from ompbind.openmp.variables import DEFEATING, THREAD_COUNTS
from ompbind.planning.rank_variables import OMPBIND_CPUS, OMPBIND_RANK, OMPBIND_RUN_ID
from ompbind.record import Record

_FAMILIES = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS", "BLIS_", "NUMEXPR_", "TBB_", "OMPBIND_", "LD_PRELOAD",
)  # fmt: skip
_KNOWN = {*THREAD_COUNTS, *DEFEATING, *(name for name, _ in SPINS)}
"""Variables that decide where threads run and how many there are: what their names begin with, and others."""


class Expected(Record):
    """What a plan says of the threads of one rank; `rank` is None where no plan does, and it is guessed.

    Processes of the rank that belong to another run than `run_id`, one inside it, have a plan of their own.
    `memory` is the policy that its memory is to have, as the kernel writes it; "" is any.
    """

    rank: int | None
    cpus: CpuSet
    places: tuple[CpuSet, ...]
    bind: Bind
    run_id: str = ""
    memory: str = ""

    @property
    def masks(self) -> frozenset[CpuSet]:
        """The masks that threads of the rank may have: all of it, or one of its places."""
        return frozenset((self.cpus, *self.places))


def is_relevant(name: str) -> bool:
    """Tell whether a variable decides where threads run or how many there are."""
    return name.startswith(_FAMILIES) or name.endswith("_NUM_THREADS") or name in _KNOWN


def expect_variables(env: Mapping[str, str]) -> Expected | None:
    """Return what ompbind's own variables say is expected of a process; None when it has not started it."""
    try:
        rank, cpus = int(env[OMPBIND_RANK]), CpuSet.from_list(env[OMPBIND_CPUS])
    except (KeyError, ValueError):
        return None
    places = parse_places(env.get("OMP_PLACES", "")) or ()
    if "proclist=[" in env.get("KMP_AFFINITY", ""):
        places = tuple(CpuSet((cpu,)) for cpu in cpus)
    elif env.get("OMP_PROC_BIND", "false").lower() == "false":
        places = ()
    if not cpus:
        return None
    run_id = env.get(OMPBIND_RUN_ID, "")
    return Expected(rank=rank, cpus=cpus, places=places, bind=_mode(places, cpus), run_id=run_id)


def _mode(places: Sequence[CpuSet], cpus: CpuSet) -> Bind:
    if not places:
        return Bind.NONE
    if places[0] != cpus:
        return Bind.EXACT
    if len(places) == 1:
        return Bind.RANK
    return Bind.THREAD if all(len(place) == 1 for place in places[1:]) else Bind.CORE
