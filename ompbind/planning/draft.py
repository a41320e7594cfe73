"""The draft of a plan for one request, which starts with the CPUs that it may use, in order."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

from ompbind.cpuset import EMPTY, CpuSet, count, named, union
from ompbind.errors import PlanError
from ompbind.machine.devices import Device
from ompbind.machine.model import CoreChoice, Machine
from ompbind.masks.mask import Mask, parse_mask, part_error
from ompbind.masks.resolution import UsableCpus, resolve_mask
from ompbind.planning.other_runs import LiveRun, render_occupancy
from ompbind.planning.plan import Note, Placement
from ompbind.planning.request import Request, Sharing, Smt

OTHER_GROUPS_HINT = "request fewer cores for the other groups, or let groups share CPUs with --share"
"""The hint for a group that finds no CPU left."""

SMT8_AUTO_LIMIT = 4
"""Hardware threads per core that `--smt auto` uses on cores with eight or more (POWER)."""


def apply_job_cpus(machine: Machine, request: Request) -> Request:
    """Return the request with its number of CPUs of the job only if that limits the plan.

    Batch systems without cpusets let a job run on all CPUs of a machine, also on the CPUs of other jobs.
    Ranks that are bound could share CPUs with another job while other CPUs are idle: so they are not bound,
    and have as many threads as the job may use CPUs. A mask, or --avoid, says that the user knows better.
    """
    job = request.job_cpus
    if job is None:
        return request
    allowed = machine.allowed
    is_narrowed = allowed != machine.online
    cores = len(machine.table.rows(allowed))
    if len(allowed) <= job.count or (is_narrowed and cores <= job.count):
        return request.replace(job_cpus=None)
    if request.names_cpus or request.is_unbound or request.sharing is Sharing.AVOID:
        return request
    ranks = (request.rank_count or 1) + request.outside_ranks
    if ranks > job.count and not request.share:
        raise PlanError(
            f"{ranks} ranks do not fit on the {job}",
            hint=f"start at most {count(job.count, 'rank')}, or let ranks share CPUs with --share",
        )
    cores_each = request.cores and min(request.cores, max(1, job.count // ranks))
    unused = {
        "--cores": request.cores and request.cores > (cores_each or 0),
        "--reserve": request.reserve or request.reserve_total,
        "--service-cores": request.has_service,
    }
    return request.replace(
        job_cpus=job.replace(unused=tuple(name for name, given in unused.items() if given)),
        mask=parse_mask("none"),
        threads=request.threads or cores_each,
        cores=None,
        reserve=0,
        reserve_total=0,
        service_cores=0,
        service_total=0,
        service_each=0,
    )


class Draft:
    """What is decided about the ranks of one request: the CPUs that it may use; later steps add the rest.

    `avoided` are the CPUs of the cores that the other live runs (`runs`) occupy, if the request avoids them,
    `taken` the CPUs that other groups have. `cpus` are in the order in which ranks get them; `cpus_by_rank`
    has the CPUs of each rank, if the mask has a part for each. `devices` of each rank are empty if ranks get
    none.
    """

    def __init__(
        self,
        machine: Machine,
        request: Request,
        runs: Sequence[LiveRun] = (),
        *,
        avoided: CpuSet = EMPTY,
        taken: CpuSet = EMPTY,
    ) -> None:
        self.machine, self.request, self.runs = machine, request, tuple(runs)
        self.avoided, self.taken = avoided, taken
        self.usable = UsableCpus(
            machine=machine, free=machine.allowed - avoided - taken, explain=self._explain_not_free
        )
        self.cpus_by_rank: tuple[tuple[int, ...], ...] = ()
        self.devices: tuple[tuple[Device, ...], ...] = ()
        self.placements: list[Placement] = []
        self.notes: list[Note] = []
        self.cpus = self._choose_cpus()

    def _explain_not_free(self, cpus: CpuSet) -> Iterator[tuple[str, str]]:
        if occupied := cpus & self.avoided:
            yield render_occupancy(self.machine, self.runs, occupied), ""
        if taken := cpus & self.taken:
            verb = "belongs" if len(taken) == 1 else "belong"
            yield f"{named('CPU', taken)} {verb} to another group", "; --share lets groups share CPUs"

    @cached_property
    def position(self) -> dict[int, int]:
        """The index of each CPU in `cpus`."""
        return {cpu: index for index, cpu in enumerate(self.cpus)}

    def sort(self, cpus: CpuSet) -> tuple[int, ...]:
        """Return CPUs in the order of `cpus`."""
        return tuple(sorted(cpus, key=self.position.__getitem__))

    def siblings(self, rows: Sequence[int]) -> CpuSet:
        """Return all free CPUs of some cores."""
        return union(self.machine.table.cores[row] for row in rows) & self.usable.free

    def _choose_cpus(self) -> tuple[int, ...]:
        machine, request, near = self.machine, self.request, self.machine.online
        if request.core_kind == "efficiency" and not machine.kinds:
            raise PlanError(
                "--core-kind efficiency: this machine does not report kinds of cores",
                hint="name the CPUs with --mask instead, or omit --core-kind; 'ompbind topo' shows the cores",
            )
        if request.near:
            from ompbind.planning.devices.locality import find_named_locality  # noqa: PLC0415 - door: devices

            near = union(find_named_locality(machine, word).cpus for word in request.near)
        of_kind = machine.cpus_of_kind(request.core_kind)
        if request.mask is not None and request.mask.parts:
            parts = self._resolve_parts(request.mask, of_kind, near)
            self.cpus_by_rank = parts if len(parts) > 1 else ()
            cpus = tuple(cpu for part in parts for cpu in part)
            self.notes += _explain_hardware_threads(machine, request.smt, request.mask, CpuSet(cpus))
            return cpus
        if request.nodes is None:
            usable = self.usable.default & of_kind & near
            if request.job_cpus and not request.is_unbound:
                rows = machine.table.rows(usable)[: request.job_cpus.count]
                usable &= union(machine.table.cores[row] for row in rows)
            cpus = tuple(machine.table.sort(usable))
        else:
            (on_nodes,), _ = resolve_mask(request.nodes, self.usable)
            cpus = tuple(cpu for cpu in on_nodes if cpu in of_kind and cpu in near)
        if cpus:
            return cpus
        kind = "" if request.core_kind == "all" else f"{request.core_kind} "
        where = f" near {', '.join(request.near)}" if request.near else ""
        hint = "omit --near" if where else f"wait for free CPUs ('run --wait'), or omit --{request.sharing}"
        hint = OTHER_GROUPS_HINT if self.taken and not where else hint
        hint = _render_core_kinds(machine, request.core_kind) if kind else hint
        raise PlanError(f"no {kind}core{where} is {self.usable.state}", hint=hint)

    def _resolve_parts(self, mask: Mask, of_kind: CpuSet, near: CpuSet) -> tuple[tuple[int, ...], ...]:
        """Return the CPUs of each part that are `near` and of the requested kind; note what is dropped."""
        request, kind = self.request, self.request.core_kind
        parts, dropped = resolve_mask(mask, self.usable, allow_partial=request.allow_partial)
        self.notes += [
            Note(code="mask-partial", text=f"dropped from the mask: {text}", warning=True) for text in dropped
        ]
        for usable, what, hint in (
            (of_kind, f"{kind} core", _render_core_kinds(self.machine, kind)),
            (near, f"CPU near {', '.join(request.near)}", f"{named('CPU', near)} are near, or omit --near"),
        ):
            parts = tuple(tuple(cpu for cpu in part if cpu in usable) for part in parts)
            for items, part in zip(mask.parts, parts, strict=True):
                if not part:
                    raise part_error(mask, items, f"this part of the mask names no {what}", hint)
        number, ranks = len(mask.parts), request.rank_count
        if number == 1 or ranks in (None, number):
            return parts
        items = tuple(item for part in mask.parts[ranks:] or mask.parts for item in part)
        message = f"the mask has {number} parts for {count(ranks or 0, 'rank')}"
        write = f"write {count(ranks or 0, 'part')}, or " if ranks != 1 else ""
        hint = f"use -n {number}, one rank for each part, or {write}a mask without '|', which ranks divide"
        if ranks == 1 and request.compat and request.compat.workers:
            hint = request.compat.workers
        raise part_error(mask, items, message, hint)


def _render_core_kinds(machine: Machine, choice: CoreChoice) -> str:
    if choice in ("cache", "fast"):
        return f"the {choice} cores of this machine are {named('CPU', machine.cpus_of_kind(choice))}"
    kinds = ", ".join(f"{kind.name}: {named('CPU', kind.cpus)}" for kind in machine.kinds)
    return f"the core kinds of this machine are {kinds}"


def _explain_hardware_threads(machine: Machine, limit: Smt, mask: Mask, named_cpus: CpuSet) -> Iterator[Note]:
    """Explain that --smt uses fewer CPUs than the mask names, or that domains mean all hardware threads."""
    by_core = [cpus & named_cpus for cpus in machine.table.cores]
    names_domain = any(item.chain and not item.excluded for part in mask.parts for item in part)
    if limit == "auto" and names_domain and (most := max(map(len, by_core))) > 1:
        text = f"domains in the mask mean all their hardware threads: up to {most} per core are used"
        yield Note(code="smt", text=f"{text} (--smt 1 uses one)")
    if isinstance(limit, int) and (pruned := union(cpus for cpus in by_core if len(cpus) > limit)):
        uses = f"--smt {limit} uses only {count(limit, 'CPU')} of each core"
        yield Note(code="smt", text=f"the mask names {named('CPU', pruned)}; {uses}")


def find_usable_cpus(draft: Draft, cpus: Sequence[int]) -> dict[int, CpuSet]:
    """Return the usable CPUs of each core with some of these CPUs, by its row: as many as SMT allows.

    The cores are in the machine's order, or in that of the requested nodes.
    """
    request, table, in_pool = draft.request, draft.machine.table, CpuSet(cpus)
    is_named = request.mask is not None and bool(request.mask.parts)
    threads, smt = _count_hardware_threads(draft.machine), request.effective_smt
    if isinstance(smt, int):
        limit = smt
    elif smt == "all" or is_named:
        limit = threads
    else:
        limit = SMT8_AUTO_LIMIT if threads >= 8 else threads if uses_only_core(draft.machine, request) else 1
    rows = table.rows(in_pool)
    if request.nodes is not None and not is_named:
        rows = list(dict.fromkeys(table.core_of[cpu] for cpu in cpus))
    if request.start:
        rows.sort(key=lambda row: row < request.start)
    return {row: limit_cpus(table.cores[row] & in_pool, limit, request.sibling) for row in rows}


def uses_only_core(machine: Machine, request: Request) -> bool:
    """Return whether --smt auto means all hardware threads: of the only core, which only one rank may use."""
    is_default = request.smt == "auto" and request.ranks in (1, "auto") and not request.names_cpus
    others = request.outside_ranks or request.group or request.compat
    return is_default and not others and len(machine.table.rows(machine.allowed)) == 1


def _count_hardware_threads(machine: Machine) -> int:
    """Return the hardware threads of the largest core, on POWER with offline ones.

    POWER numbers the hardware threads of a core one after the other, so the smallest distance between the
    first CPUs of two cores shows how many there are.
    """
    online = max(map(len, machine.table.cores))
    if not (machine.offline and machine.arch.startswith("ppc")):
        return online
    firsts = sorted(cpus.first for cpus in machine.table.cores)
    return min((second - first for first, second in pairwise(firsts)), default=online)


def limit_cpus(cpus: CpuSet, limit: int, sibling: str) -> CpuSet:
    """Return the first or last `limit` CPUs of one core."""
    if len(cpus) <= limit:
        return cpus
    if limit == 1 and sibling == "first":  # the usual case
        return CpuSet((cpus.first,))
    numbers = tuple(cpus)
    return CpuSet(numbers[:limit] if sibling == "first" else numbers[-limit:])
