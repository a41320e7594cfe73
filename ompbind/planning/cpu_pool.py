"""The ordered CPUs that a request may use: CPUs of its mask, or else all free CPUs; and their cores."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ompbind.cpuset import CpuSet, count, named, union
from ompbind.errors import PlanError
from ompbind.machine.devices import Device
from ompbind.machine.model import Level, Machine
from ompbind.masks.mask import Mask, part_error
from ompbind.planning.mask_resolution import Parts, resolve_mask
from ompbind.planning.other_runs import AvailableCpus, sort_by_core
from ompbind.planning.plan import Note
from ompbind.planning.request import Request, Smt
from ompbind.record import Record

OTHER_GROUPS_HINT = "request fewer cores for the other groups, or let groups share CPUs with --share"
"""The hint for a group that finds no CPU left."""

SMT8_AUTO_LIMIT = 4
"""Hardware threads per core that `--smt auto` uses on cores with eight or more (POWER); on others it is 1."""


class CpuPool(Record):
    """The ordered CPUs that a request may use.

    `position` is the index of each CPU in `cpus`. `cpus_by_rank` are the CPUs of each rank, if the mask has a
    part for each. `devices` are the devices of each rank, empty if ranks get none.
    """

    available: AvailableCpus
    request: Request
    cpus: tuple[int, ...]
    position: Mapping[int, int]
    named_by_mask: bool = False
    cpus_by_rank: tuple[tuple[int, ...], ...] = ()
    devices: tuple[tuple[Device, ...], ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def machine(self) -> Machine:
        """The machine to which the CPUs belong."""
        return self.available.machine

    def rows(self, cpus: CpuSet) -> list[int]:
        """Return the cores with some of these CPUs, in the machine's order or that of the requested nodes."""
        found = self.machine.table.rows(cpus)
        if self.named_by_mask or self.request.nodes is None:
            return found
        cores = self.machine.table.cores
        return sorted(found, key=lambda row: min(self.position[cpu] for cpu in cores[row] & cpus))


def make_cpu_pool(available: AvailableCpus, request: Request) -> CpuPool:
    """Return the CPUs that a request may use: the CPUs of its mask, or else all free CPUs.

    Raises MaskError if the mask does not fit the machine, PlanError if no CPU is left.
    """
    machine, near = available.machine, available.machine.online
    if request.core_kind == "efficiency" and not machine.kinds:
        raise PlanError(
            "--core-kind efficiency: this machine does not report kinds of cores",
            hint="name the CPUs with --mask instead, or omit --core-kind; 'ompbind topo' shows the cores",
        )
    if request.near:
        from ompbind.planning.devices.locality import find_near_cpus  # noqa: PLC0415 - door: devices

        near = find_near_cpus(available, request.near)
    of_kind = machine.cpus_of_kind(request.core_kind)
    if request.mask is not None and request.mask.parts:
        parts, dropped = _resolve_parts(request.mask, available, request, near)
        cpus = tuple(cpu for part in parts for cpu in part)
        notes = [
            Note(code="mask-partial", text=f"dropped from the mask: {text}", warning=True) for text in dropped
        ]
        return CpuPool(
            available=available,
            request=request,
            cpus=cpus,
            position={cpu: index for index, cpu in enumerate(cpus)},
            named_by_mask=True,
            cpus_by_rank=parts if len(parts) > 1 else (),
            notes=(*notes, *_explain_hardware_threads(machine, request.smt, request.mask, CpuSet(cpus))),
        )
    if request.nodes is None:
        usable = available.default_cpus & of_kind & near
        if request.job_cpus and not request.is_unbound:
            cores = machine.at(Level.CORE, usable)[: request.job_cpus.count]
            usable &= union(core.cpus for core in cores)
        cpus = tuple(sort_by_core(machine, usable))
    else:
        (on_nodes,), _ = resolve_mask(request.nodes, available)
        cpus = tuple(cpu for cpu in on_nodes if cpu in of_kind and cpu in near)
    if not cpus:
        kind = "" if request.core_kind == "all" else f"{request.core_kind} "
        where = f" near {', '.join(request.near)}" if request.near else ""
        hint = "omit --near" if where else f"wait for free CPUs ('run --wait'), or omit --{request.sharing}"
        hint = OTHER_GROUPS_HINT if available.taken and not where else hint
        hint = _render_core_kinds(machine) if kind else hint
        raise PlanError(f"no {kind}core{where} is {available.state}", hint=hint)
    position = {cpu: index for index, cpu in enumerate(cpus)}
    return CpuPool(available=available, request=request, cpus=cpus, position=position)


def _resolve_parts(
    mask: Mask, available: AvailableCpus, request: Request, near: CpuSet
) -> tuple[Parts, tuple[str, ...]]:
    """Return the CPUs of each part that are `near` and of the requested kind, and a text for each drop.

    Raises MaskError if the mask does not fit the machine or the request, also if it has several parts, but
    not one for each rank.
    """
    machine = available.machine
    parts, dropped = resolve_mask(mask, available, allow_partial=request.allow_partial)
    narrowings = (
        (machine.cpus_of_kind(request.core_kind), f"{request.core_kind} core", _render_core_kinds(machine)),
        (near, f"CPU near {', '.join(request.near)}", f"{named('CPU', near)} are near, or omit --near"),
    )
    for usable, what, hint in narrowings:
        parts = tuple(tuple(cpu for cpu in part if cpu in usable) for part in parts)
        for items, part in zip(mask.parts, parts, strict=True):
            if not part:
                raise part_error(mask, items, f"this part of the mask names no {what}", hint)
    number, ranks = len(mask.parts), request.ranks
    if number == 1 or ranks in (None, number):
        return parts, dropped
    surplus = [item for part in mask.parts[ranks:] for item in part]
    items = tuple(surplus or (item for part in mask.parts for item in part))
    message = f"the mask has {number} parts for {count(ranks or 0, 'rank')}"
    write = f"write {count(ranks or 0, 'part')}"
    hint = f"use -n {number}, {write}, or write a mask without '|' to divide it among the ranks"
    if ranks == 1 and request.compat and request.compat.workers:
        hint = request.compat.workers
    raise part_error(mask, items, message, hint)


def _render_core_kinds(machine: Machine) -> str:
    """Return the hint that names the kinds of cores and their CPUs."""
    kinds = ", ".join(f"{kind.name}: {named('CPU', kind.cpus)}" for kind in machine.kinds)
    return f"the core kinds of this machine are {kinds}"


def _explain_hardware_threads(machine: Machine, limit: Smt, mask: Mask, named_cpus: CpuSet) -> Iterator[Note]:
    """Explain that --smt uses fewer CPUs than the mask names, or that domains mean all hardware threads."""
    by_core = [core.cpus & named_cpus for core in machine.at(Level.CORE)]
    names_domain = any(item.chain and not item.excluded for part in mask.parts for item in part)
    if limit == "auto" and names_domain and (most := max(map(len, by_core))) > 1:
        text = f"domains in the mask mean all their hardware threads: up to {most} per core are used"
        yield Note(code="smt", text=f"{text} (--smt 1 uses one)")
    if isinstance(limit, int) and (pruned := union(cpus for cpus in by_core if len(cpus) > limit)):
        uses = f"--smt {limit} uses only {count(limit, 'CPU')} of each core"
        text = f"the mask names {named('CPU', pruned)}; {uses}"
        yield Note(code="smt", text=text)


def find_usable_cpus(pool: CpuPool) -> dict[int, CpuSet]:
    """Return the usable CPUs of each core of the pool by its row: at most as many as SMT allows."""
    in_pool, smt = CpuSet(pool.cpus), pool.request.effective_smt
    threads = _count_hardware_threads(pool.machine)
    if isinstance(smt, int):
        limit = smt
    elif smt == "all" or pool.named_by_mask:
        limit = threads
    else:
        limit = SMT8_AUTO_LIMIT if threads >= 8 else 1
    sibling, cores = pool.request.sibling, pool.machine.table.cores
    return {row: limit_cpus(cores[row] & in_pool, limit, sibling) for row in pool.rows(in_pool)}


def _count_hardware_threads(machine: Machine) -> int:
    """Return the hardware threads of the largest core, on POWER with offline ones.

    POWER numbers the hardware threads of a core one after the other, so the smallest distance between the
    first CPUs of two cores shows how many there are.
    """
    cores = machine.at(Level.CORE)
    online = max(len(core.cpus) for core in cores)
    if not (machine.offline and machine.arch.startswith("ppc")):
        return online
    firsts = sorted(core.cpus.first for core in cores)
    return min((second - first for first, second in pairwise(firsts)), default=online)


def limit_cpus(cpus: CpuSet, limit: int, sibling: str) -> CpuSet:
    """Return the first or last `limit` CPUs of one core."""
    if len(cpus) <= limit:
        return cpus
    if limit == 1 and sibling == "first":  # the usual case
        return CpuSet((cpus.first,))
    numbers = tuple(cpus)
    return CpuSet(numbers[:limit] if sibling == "first" else numbers[-limit:])


def sort_by_position(pool: CpuPool, cpus: CpuSet) -> tuple[int, ...]:
    """Return CPUs in the order of the pool."""
    return tuple(sorted(cpus, key=pool.position.__getitem__))


def find_siblings(available: AvailableCpus, rows: Sequence[int]) -> CpuSet:
    """Return all free CPUs of some cores."""
    return union(available.machine.table.cores[row] for row in rows) & available.free
