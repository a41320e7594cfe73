"""Notes on wrappers in a command: what they undo of a plan, and how to avoid it.

A wrapper (`taskset`, `env`) runs after ompbind has bound the rank and set its variables, so it has the last
word. Wrappers that change nothing of a plan get no note.
"""

from collections.abc import Iterator

from ompbind.cpuset import count, union
from ompbind.openmp.binding import DISTRIBUTING_WORDS, Bind
from ompbind.openmp.runtimes import KMP_AFFINITY, PLACE_VARIABLES
from ompbind.planning.plan import Note, Placement, Plan
from ompbind.planning.rank_command import make_thread_variables
from ompbind.planning.runtimes import find_override
from ompbind.programs.command import Workload
from ompbind.programs.wrappers import Launch, Wrapper
from ompbind.record import Record

WRAPPER, WRAPPER_THREADS = "wrapper", "wrapper-threads"
"""The codes of notes: a wrapper undoes the binding, or only changes how many threads share the CPUs."""

_THREADS = "OMP_NUM_THREADS"


class WrapperEffect(Record):
    """What a wrapper undoes: the part of the command, what that part does, and what works instead."""

    words: str
    effect: str
    remedy: str
    code: str = WRAPPER


def explain_wrappers(plan: Plan) -> Iterator[Note]:
    """Yield a warning for each effect of a wrapper on a plan."""
    for found in find_effects(plan.request.workload or Workload(), plan):
        yield Note(code=found.code, text=f"{found.words} {found.effect} ({found.remedy})", warning=True)


def find_effects(workload: Workload, plan: Plan | None = None) -> Iterator[WrapperEffect]:
    """Yield what the wrappers of a command undo of a plan; without a plan, what they may undo of any plan."""
    for wrapper in workload.wrappers:
        for find in (_find_affinity, _find_launcher, _find_removed, _find_assigned):
            yield from find(wrapper, plan)


def _find_affinity(wrapper: Wrapper, plan: Plan | None) -> Iterator[WrapperEffect]:
    """Yield the effects of taskset, numactl and similar on the affinity mask and the memory policy."""
    if plan and _leaves_unbound(plan):
        return
    cpus = wrapper.cpus
    if plan and wrapper.nodes is not None:  # its CPUs are known if all its nodes are
        nodes = [node for node in plan.machine.nodes if node.number in wrapper.nodes]
        cpus = union(node.cpus for node in nodes) if len(nodes) == len(wrapper.nodes) else None
    placements = plan.placements if plan else ()
    if wrapper.rebinds and not (plan and all(cpus == placement.cpuset for placement in placements)):
        effect = "replaces the affinity mask of its rank"
        remedy = "remove it, and select CPUs with --mask"
        yield WrapperEffect(words=wrapper.text, effect=effect, remedy=remedy)
    if wrapper.sets_memory and any(placement.memory for placement in placements):
        effect = "replaces the memory policy of its rank"
        yield WrapperEffect(words=wrapper.text, effect=effect, remedy="remove it, or omit --memory")


def _leaves_unbound(plan: Plan) -> bool:
    """Return whether a plan binds nothing, as with --mask none: another program is to bind the ranks."""
    request = plan.request
    gets_all = request.mask is None and request.strategy == "all" and request.bind is Bind.NONE
    return request.is_unbound or gets_all


def _find_launcher(wrapper: Wrapper, plan: Plan | None) -> Iterator[WrapperEffect]:
    launch = wrapper.launch
    if launch is None or (plan and _leaves_unbound(plan)):
        return
    remedy = f"use '{launch.instead}' instead"
    if not launch.workers:
        name = launch.text.split()[0]
        effect = f"starts processes, and may bind them by rules of its own; the plan binds only {name}"
        yield WrapperEffect(words=launch.text, effect=effect, remedy=remedy)
    elif not (plan and all(_fit(launch, placement) for placement in plan.placements)):
        effect = f"starts several processes ({launch.workers}), which share the CPUs of one rank"
        if launch.jobs:
            effect = f"starts up to {launch.workers} commands at a time, "
            effect += "more than the rank has threads" if plan else "also if a rank has fewer threads"
            remedy = f"use '--fill -- {launch.instead} ...'"
        elif not launch.instead:
            most = max(placement.process_threads for placement in plan.placements) if plan else 0
            effect += f", each with {count(most, 'thread') if most else 'as many threads as the rank has'}"
            is_number = launch.workers.isdecimal()
            remedy = f"add {f'--processes-per-rank {launch.workers}' if is_number else '-t 1'}"
        yield WrapperEffect(words=launch.text, effect=effect, remedy=remedy, code=WRAPPER_THREADS)


def _fit(launch: Launch, placement: Placement) -> bool:
    """Return whether the threads of all processes of a launcher have a CPU each."""
    if launch.jobs:
        return int(launch.workers) <= placement.threads
    if not launch.instead and placement.process_threads == 1:
        return True
    is_number = launch.workers.isdecimal()
    return is_number and int(launch.workers) * placement.process_threads <= len(placement.cpus)


def _find_removed(wrapper: Wrapper, plan: Plan | None) -> Iterator[WrapperEffect]:
    """Yield the effects of `env -i` and `env -u`."""
    if wrapper.clears:
        effect = f"removes all variables that ompbind sets, also {_THREADS}, OMP_PLACES and RANK"
        remedy = "use 'env -u NAME' for each variable to remove"
        yield WrapperEffect(words="env -i", effect=effect, remedy=remedy)
        return
    bound_by = list(PLACE_VARIABLES)
    if plan:  # a CPU list for one runtime, if not the variables of OpenMP
        variables = make_thread_variables(plan, 0)
        bound_by = [name for name in PLACE_VARIABLES if variables[name] is not None] or [KMP_AFFINITY]
    removed = [name for name in bound_by if name in wrapper.removed]
    # threads run on the same CPUs without some variables that bind them, or without all; with
    # OMP_PROC_BIND=true alone, runtimes bind threads to single CPUs
    is_harmless = plan and (
        all(len(placement.cpuset) == 1 for placement in plan.placements)
        or (removed == bound_by and all(len(found.places) < 2 for found in plan.placements))
    )
    if removed and not is_harmless:
        words = " ".join(f"-u {name}" for name in removed)
        remedy = "remove it; --bind none turns binding off"
        yield WrapperEffect(
            words=f"env {words}", effect="undoes the binding of OpenMP threads", remedy=remedy
        )
    has_default = plan and all(placement.threads == len(placement.cpus) for placement in plan.placements)
    if _THREADS in wrapper.removed and not has_default:
        effect = "removes the number of threads of its rank"
        remedy = "remove it, and set the number with --threads"
        words = f"env -u {_THREADS}"
        yield WrapperEffect(words=words, effect=effect, remedy=remedy, code=WRAPPER_THREADS)


def _find_assigned(wrapper: Wrapper, plan: Plan | None) -> Iterator[WrapperEffect]:
    """Yield the effects of `env NAME=VALUE`."""
    has_places = plan is None or plan.has_places
    for name, value in wrapper.assigned:
        words = f"env {name}={value}"
        effect = find_override(name, value, has_places=has_places)
        if effect and not (name == "OMP_PROC_BIND" and value.lower() in DISTRIBUTING_WORDS):
            remedy = "remove it; choose places with --bind and CPUs with --mask"
            yield WrapperEffect(words=words, effect=effect, remedy=remedy)
        if name == _THREADS and not (
            plan and all(value == str(placement.threads) for placement in plan.placements)
        ):
            effect = "replaces the number of threads of its rank"
            number = f" {value}" if value.isdecimal() and int(value) else ""
            remedy = f"use --threads{number} instead"
            yield WrapperEffect(words=words, effect=effect, remedy=remedy, code=WRAPPER_THREADS)
