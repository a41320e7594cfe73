"""What a plan expects of the threads of a rank: affinity masks, places and the memory policy.

A thread is *outside* if its affinity mask has CPUs that are not the rank's. It is *narrowed* if its mask is a
smaller set of the rank's CPUs that is not one of its places.
"""

from collections.abc import Mapping, Sequence

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.openmp.binding import Bind, parse_places
from ompbind.openmp.runtimes import PLACE_VARIABLES, SPIN_SETTINGS
from ompbind.openmp.variables import MASK_COUNTS, OVERRIDING_VARIABLES, THREAD_COUNTS
from ompbind.planning.rank_variables import (
    OMPBIND_CPUS,
    OMPBIND_RANK,
    OMPBIND_RUN_ID,
    OMPBIND_SERVICE_CPUS,
)
from ompbind.record import Record

_FAMILIES = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS", "BLIS_", "NUMEXPR_", "TBB_", "OMPBIND_", "LD_PRELOAD",
)  # fmt: skip
_KNOWN = {*THREAD_COUNTS, *OVERRIDING_VARIABLES, *(name for name, _ in SPIN_SETTINGS)}
"""Variables that decide where threads run and how many there are: prefixes of names, and whole names."""


class ExpectedBinding(Record):
    """What is expected of the threads of one rank; `rank` is None if there is no plan and this is a guess.

    `cpus` are all CPUs of the rank; no OpenMP worker is to run on its `service_cpus`. `run_id` is the run of
    the rank. Processes of the rank with another run ID belong to a nested run, which has its own plan.
    `memory` is the expected memory policy as the kernel writes it; "" for any policy. `variables` bind OpenMP
    threads or set their number: each name with the value that ompbind gave to the rank, None if ompbind
    removed it. Variables with an unknown value are left out.
    """

    rank: int | None
    cpus: CpuSet
    places: tuple[CpuSet, ...]
    bind: Bind
    run_id: str = ""
    memory: str = ""
    variables: tuple[tuple[str, str | None], ...] = ()
    service_cpus: CpuSet = EMPTY

    @property
    def compute(self) -> CpuSet:
        """The CPUs of the rank without its service CPUs."""
        return self.cpus - self.service_cpus

    @property
    def binds_workers(self) -> bool:
        """Whether OpenMP workers are to be on places that are smaller than the rank."""
        return self.bind not in (Bind.RANK, Bind.NONE) or any(place != self.cpus for place in self.places)

    @property
    def masks(self) -> frozenset[CpuSet]:
        """The masks that threads of the rank may have: all its CPUs, or one of its places."""
        return frozenset((self.cpus, *self.places))


def is_relevant(name: str) -> bool:
    """Return whether a variable decides where threads run or how many there are."""
    return name.startswith(_FAMILIES) or name.endswith("_NUM_THREADS") or name in _KNOWN


def select_variables(env: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
    """Return the variables of a rank's environment for `ExpectedBinding.variables`.

    A number of threads that ompbind leaves to libraries may be set by the program, as joblib does.
    """
    names = dict.fromkeys((*PLACE_VARIABLES, *THREAD_COUNTS, *OVERRIDING_VARIABLES))
    return tuple((name, env.get(name)) for name in names if name in env or name not in MASK_COUNTS)


def expect_variables(env: Mapping[str, str]) -> ExpectedBinding | None:
    """Return what is expected of a process by ompbind's variables; None if ompbind has not started it."""
    try:
        rank, compute = int(env[OMPBIND_RANK]), CpuSet.from_list(env[OMPBIND_CPUS])
        service = CpuSet.from_list(env.get(OMPBIND_SERVICE_CPUS, ""))
    except (KeyError, ValueError):
        return None
    places = parse_places(env.get("OMP_PLACES", "")) or ()
    if "proclist=[" in env.get("KMP_AFFINITY", ""):
        places = tuple(CpuSet((cpu,)) for cpu in compute)
    elif env.get("OMP_PROC_BIND", "false").lower() == "false":
        places = ()
    if not compute:
        return None
    return ExpectedBinding(
        rank=rank,
        cpus=compute | service,
        places=places,
        bind=_guess_bind(places, compute, service),
        run_id=env.get(OMPBIND_RUN_ID, ""),
        service_cpus=service,
    )


def _guess_bind(places: Sequence[CpuSet], compute: CpuSet, service: CpuSet) -> Bind:
    """Return the binding mode that has such places."""
    if not places:
        return Bind.NONE
    if places[0] != compute | service:
        return Bind.EXACT
    if all(place == compute for place in places[1:]):
        return Bind.RANK
    return Bind.THREAD if all(len(place) == 1 for place in places[1:]) else Bind.CORE
