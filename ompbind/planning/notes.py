"""The notes of a plan: what it decides that the request does not say, and what cannot be bound.

Each `_explain_` function yields the notes on one subject; `_SUBJECTS` lists the functions in output order.
A subject of few plans has a module of its own.
"""

from collections.abc import Callable, Iterable, Iterator

from ompbind.cpuset import CpuSet, count, named, union
from ompbind.machine.model import Level, cpus_of_cores, index_by_cpu
from ompbind.openmp.binding import BindingSyntax
from ompbind.planning.allowed_memory import find_remote_cpus
from ompbind.planning.compat_notes import explain_compat
from ompbind.planning.conflicts import explain_other_runs
from ompbind.planning.core_kind_notes import explain_kinds
from ompbind.planning.isolation_notes import explain_isolated
from ompbind.planning.mask_notes import explain_numbers
from ompbind.planning.memory_policy import explain_memory
from ompbind.planning.plan import Note, Plan
from ompbind.planning.quota_notes import explain_quota
from ompbind.planning.request import MemoryMode, Sharing
from ompbind.planning.runtime_choice import choose_syntax
from ompbind.planning.runtime_notes import explain_runtime
from ompbind.planning.service_notes import explain_service
from ompbind.planning.strategies.table import STRATEGIES
from ompbind.planning.wrapper_notes import explain_wrappers


def explain(plan: Plan) -> list[Note]:
    """Return all notes of a plan."""
    return [note for explain_subject in _SUBJECTS for note in explain_subject(plan)]


def _explain_machine(plan: Plan) -> Iterator[Note]:
    for remark in plan.machine.remarks:
        yield Note(code="machine", text=remark, warning=True)
    if not plan.machine.bindable:
        text = "this system cannot confine a process to CPUs: only thread counts are set"
        yield Note(code="not-bindable", text=text, warning=True)


def _explain_compat(plan: Plan) -> Iterable[Note]:
    if not plan.request.compat:
        return ()
    return explain_compat(plan, plan.request.compat)


def _explain_numbers(plan: Plan) -> Iterable[Note]:
    if not plan.request.mask:
        return ()
    return explain_numbers(plan, plan.request.mask)


def _explain_unused(plan: Plan) -> Iterator[Note]:
    """List hardware threads and cores that are idle; CPUs that are excluded by default have other notes."""
    used, excluded_by_default = plan.used, plan.machine.excluded_by_default
    cores = plan.machine.at(Level.CORE)
    idle_siblings = cpus_of_cores(plan.machine, used) & plan.idle - excluded_by_default
    if idle_siblings and plan.request.smt != "all" and plan.request.mask is None:
        text = f"idle hardware threads on cores of ranks: {named('CPU', idle_siblings)} (--smt all uses them)"
        yield Note(code="smt", text=text)
    idle = plan.idle - excluded_by_default
    if plan.has_devices:
        from ompbind.planning.devices.notes import find_far_idle_cpus  # noqa: PLC0415 - door: devices

        idle -= find_far_idle_cpus(plan)  # these have a note of their own
    if idle_cores := [core for core in cores if core.cpus & idle and core.cpus.isdisjoint(used)]:
        cpus = union(core.cpus for core in idle_cores) & idle
        yield Note(code="idle", text=f"{count(len(idle_cores), 'core')} idle ({named('CPU', cpus)})")


def _explain_isolated(plan: Plan) -> Iterable[Note]:
    if not plan.machine.exclusion_reasons:
        return ()
    return explain_isolated(plan)


def _explain_kinds(plan: Plan) -> Iterable[Note]:
    if len(plan.machine.kinds) < 2:
        return ()
    return explain_kinds(plan)


def _explain_nodes(plan: Plan) -> Iterator[Note]:
    if crossing := CpuSet(placement.rank for placement in plan.placements if len(placement.nodes) > 1):
        subject = f"{named('rank', crossing)} {'has' if len(crossing) == 1 else 'have'}"
        yield Note(code="crosses-nodes", text=f"{subject} CPUs on more than one NUMA node")


def _explain_quota(plan: Plan) -> Iterable[Note]:
    if plan.machine.quota is None:
        return ()
    return explain_quota(plan)


def _explain_threads(plan: Plan) -> Iterator[Note]:
    """Warn of more threads than CPUs in a rank."""
    oversubscribed = CpuSet(
        placement.rank for placement in plan.placements if placement.threads > len(placement.cpus)
    )
    if oversubscribed:
        verb = "has" if len(oversubscribed) == 1 else "have"
        text = f"{named('rank', oversubscribed)} {verb} more threads than CPUs: they will wait for each other"
        yield Note(code="oversubscribed", text=f"{text} (lower --threads)", warning=True)


def _explain_sharing(plan: Plan) -> Iterator[Note]:
    """List ranks that share cores or CPUs, unless the strategy gives the same cores to all ranks."""
    core_of = index_by_cpu(plan.machine.at(Level.CORE))
    owners: dict[int, set[int]] = {}
    if not STRATEGIES[plan.request.strategy].overlapping:
        for placement in plan.placements:
            for cpu in (*placement.cpus, *placement.service_cpus):
                owners.setdefault(core_of[cpu], set()).add(placement.rank)
    if sharing := CpuSet(rank for ranks in owners.values() if len(ranks) > 1 for rank in ranks):
        yield Note(code="shared-cores", text=f"{named('rank', sharing)} share cores with other ranks")
    given = sum(len(placement.cpus) + len(placement.service_cpus) for placement in plan.placements)
    if given != len(plan.used):
        yield Note(code="shared", text="ranks share CPUs, as requested")


def _explain_memory(plan: Plan) -> Iterable[Note]:
    request = plan.request
    if request.memory is MemoryMode.LOCAL and not (request.memory_bytes or find_remote_cpus(plan)):
        return ()
    return explain_memory(plan)


def _explain_other_runs(plan: Plan) -> Iterable[Note]:
    if not plan.occupied and plan.request.sharing not in (Sharing.AVOID, Sharing.EXCLUSIVE):
        return ()
    return explain_other_runs(plan)


def _explain_service(plan: Plan) -> Iterable[Note]:
    if not (plan.request.has_service or any(placement.service_cpus for placement in plan.placements)):
        return ()
    return explain_service(plan)


def _explain_places(plan: Plan) -> Iterator[Note]:
    without = CpuSet(placement.rank for placement in plan.placements if not placement.places)
    if without and choose_syntax(plan.request) is not BindingSyntax.UNBOUND and plan.machine.bindable:
        text = f"OMP_PLACES of {named('rank', without)} is too long for some runtimes"
        text += ": threads will not be bound (--bind rank is shorter)"
        yield Note(code="places-too-long", text=text, warning=True)


def _explain_device_variables(plan: Plan) -> Iterable[Note]:
    if not plan.has_devices:
        return ()
    from ompbind.planning.devices.variables import explain_variables  # noqa: PLC0415 - door: devices

    return explain_variables(plan)


def _explain_wrappers(plan: Plan) -> Iterable[Note]:
    if not (plan.request.workload and plan.request.workload.wrappers):
        return ()
    return explain_wrappers(plan)


def _explain_devices(plan: Plan) -> Iterable[Note]:
    if not (plan.request.devices or plan.request.near):
        return ()
    from ompbind.planning.devices.notes import explain_devices  # noqa: PLC0415 - door: devices

    return explain_devices(plan)


_SUBJECTS: tuple[Callable[[Plan], Iterable[Note]], ...] = (
    _explain_compat,
    _explain_machine,
    _explain_numbers,
    _explain_unused,
    _explain_isolated,
    _explain_kinds,
    _explain_nodes,
    _explain_devices,
    _explain_memory,
    _explain_quota,
    _explain_threads,
    _explain_sharing,
    _explain_other_runs,
    _explain_service,
    _explain_places,
    explain_runtime,
    _explain_device_variables,
    _explain_wrappers,
)
"""What notes are about: a function for each subject, in the order of output."""
