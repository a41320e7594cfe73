"""The ground that a request stands on: which CPUs there are to divide, in order, and in which parts."""

from collections.abc import Iterator, Mapping, Sequence

from ompbind.cpuset import CpuSet, count, named, union
from ompbind.errors import PlanError
from ompbind.machine.model import Domain, Level, Machine, touched
from ompbind.masks.mask import Mask, Word, part_fault
from ompbind.planning.mask_resolution import machine_order, select
from ompbind.planning.occupancy import AvailableCpus
from ompbind.planning.plan import Note
from ompbind.planning.request import Request, Smt
from ompbind.record import Record


class CpuPool(Record):
    """What is divided: CPUs in order, whether a mask named them, and its parts if it has several.

    `position` tells where each CPU stands in that order.
    """

    available: AvailableCpus
    request: Request
    cpus: tuple[int, ...]
    position: Mapping[int, int]
    explicit: bool = False
    parts: tuple[tuple[int, ...], ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def machine(self) -> Machine:
        """The machine that the CPUs are of."""
        return self.available.machine

    def cores(self, cpus: CpuSet) -> tuple[Domain, ...]:
        """Return the cores that have some of these CPUs: in machine order, or that of nodes asked for."""
        found = touched(self.machine.at(Level.CORE), cpus)
        if self.explicit or self.request.nodes is None:
            return found
        return tuple(sorted(found, key=lambda core: min(self.position[cpu] for cpu in core.cpus & cpus)))


def make_cpu_pool(available: AvailableCpus, request: Request) -> CpuPool:
    """Find the CPUs to work with: those that the mask names, else all that are allowed."""
    machine = available.machine
    if request.mask is None or request.mask.word is Word.AUTO:
        everything = tuple(_unnamed(available, request))
        if not everything:
            kind = "" if request.core_kind == "all" else f"{request.core_kind} "
            state = "free" if available.avoided else "allowed"
            raise PlanError(f"no {kind}core is {state} here", hint=_kinds_hint(machine))
        return CpuPool(available=available, request=request, cpus=everything, position=_positions(everything))
    mask = request.mask
    selected, dropped = select(mask, available, allow_partial=request.allow_partial)
    wanted = machine.of_kind(request.core_kind)
    parts = tuple(tuple(cpu for cpu in part if cpu in wanted) for part in selected)
    for items, part in zip(mask.parts, parts, strict=True):
        if not part:
            raise part_fault(mask, items, f"no {request.core_kind} core is left here", _kinds_hint(machine))
    _check_parts(mask, request.ranks)
    cpus = tuple(cpu for part in parts for cpu in part)
    partial = (
        Note(code="mask-partial", text=f"dropped from the mask: {text}", warning=True) for text in dropped
    )
    return CpuPool(
        available=available,
        request=request,
        cpus=cpus,
        position=_positions(cpus),
        explicit=True,
        parts=parts if len(parts) > 1 else (),
        notes=(*partial, *_explain_pruning(machine, request.smt, CpuSet(cpus))),
    )


def _explain_pruning(machine: Machine, limit: Smt, named_cpus: CpuSet) -> Iterator[Note]:
    """Tell of CPUs that a mask names and --smt leaves out."""
    full = (core.cpus & named_cpus for core in machine.at(Level.CORE))
    if isinstance(limit, int) and (more := union(cpus for cpus in full if len(cpus) > limit)):
        told = named("CPU", more)
        text = f"of {told}, which the mask names, --smt {limit} uses {limit} of each core"
        yield Note(code="smt", text=text)


def _unnamed(available: AvailableCpus, request: Request) -> Iterator[int]:
    """Yield the CPUs to use where no mask names any: all, or those of the nodes that are asked for."""
    wanted = available.machine.of_kind(request.core_kind)
    if request.nodes is None:
        yield from machine_order(available.machine, available.ordinary & wanted)
    else:
        (chosen,), _ = select(request.nodes, available)
        yield from (cpu for cpu in chosen if cpu in wanted)


def _kinds_hint(machine: Machine) -> str:
    kinds = ", ".join(f"{kind.name}: CPUs {kind.cpus}" for kind in machine.kinds)
    return f"the kinds of this machine are {kinds}" if kinds else "all cores of this machine are alike"


def _positions(cpus: Sequence[int]) -> dict[int, int]:
    return {cpu: at for at, cpu in enumerate(cpus)}


def _check_parts(mask: Mask, ranks: int | None) -> None:
    found = len(mask.parts)
    if found == 1 or ranks in (None, found):
        return
    many = [item for part in mask.parts[ranks:] for item in part]
    items = tuple(many or (item for part in mask.parts for item in part))
    message = f"the mask has {found} parts for {count(ranks or 0, 'rank')}"
    hint = f"give -n {found}, or one part for each rank, or a single part for all to divide"
    raise part_fault(mask, items, message, hint)
