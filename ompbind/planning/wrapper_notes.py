"""Notes on programs in the command that undo what a plan does for a rank.

A wrapper (`taskset`, `env`) runs after ompbind has bound the rank and set its variables, so it has the last
word. Wrappers that change nothing of a plan get no note.
"""

from collections.abc import Iterator

from ompbind.cpuset import count, union
from ompbind.openmp.binding import OR_HOLD, Bind
from ompbind.planning.plan import Note, Placement, Plan
from ompbind.planning.request import Hold
from ompbind.programs.command import Workload
from ompbind.programs.wrappers import LOST_VARIABLES, Launch, Wrapper
from ompbind.record import Record
from ompbind.text import whole_number

WRAPPER, WRAPPER_THREADS = "wrapper", "wrapper-threads"
"""The codes of notes: a wrapper undoes the binding, or only changes how many threads share the CPUs."""


class WrapperEffect(Record):
    """What a wrapper undoes: the part of the command, what that part does, and what works instead."""

    words: str
    effect: str
    remedy: str
    code: str = WRAPPER
    warning: bool = True


def explain_wrappers(plan: Plan) -> Iterator[Note]:
    """Yield a warning for each effect of a wrapper on a plan, and for a program that lacks its launcher."""
    work, ranks = plan.request.workload or Workload(), len(plan.placements)
    for found in find_effects(work, plan):
        yield Note(
            code=found.code, text=f"{found.words} {found.effect} ({found.remedy})", warning=found.warning
        )
    if work.mpi and ranks > 1:
        text = f"'ompbind run' starts this MPI program as {ranks} jobs of size 1 (for one job, use"
        text += f" '{work.mpi[0]} -n {ranks} ompbind exec -- {work.mpi[1]}')"
        yield Note(code="mpi", text=text, warning=True)


def find_effects(workload: Workload, plan: Plan | None = None) -> Iterator[WrapperEffect]:
    """Yield what the wrappers of a command undo of a plan; without a plan, what they may undo of any plan."""
    leaves_unbound = False  # a plan that binds nothing: another program is to bind the ranks
    if plan:
        request = plan.request
        gets_all = request.mask is None and request.strategy == "all" and request.bind is Bind.NONE
        leaves_unbound = request.is_unbound or gets_all
    for wrapper in workload.wrappers:
        if not leaves_unbound:
            yield from _find_affinity(wrapper, plan)
            if wrapper.launch:
                yield from _find_processes(wrapper.launch, plan)
        if wrapper.lost and not (leaves_unbound and wrapper.lost != LOST_VARIABLES):
            yield WrapperEffect(words=wrapper.text, effect=wrapper.lost, remedy=wrapper.remedy)
        if wrapper.clears:
            effect = "removes all variables that ompbind sets, also OMP_NUM_THREADS, OMP_PLACES and RANK"
            remedy = "use 'env -u NAME' for each variable to remove"
            yield WrapperEffect(words="env -i", effect=effect, remedy=remedy)


def _find_affinity(wrapper: Wrapper, plan: Plan | None) -> Iterator[WrapperEffect]:
    cpus, placements = wrapper.cpus, plan.placements if plan else ()
    if plan and wrapper.nodes is not None:  # its CPUs are known if all its nodes are
        nodes = [node for node in plan.machine.nodes if node.number in wrapper.nodes]
        cpus = union(node.cpus for node in nodes) if len(nodes) == len(wrapper.nodes) else None
    masks = [placement.cpuset for placement in placements]
    after = [cpus] * len(masks)
    if plan and plan.request.hold and (OR_HOLD in wrapper.remedy or not wrapper.remedy):
        fixed = plan.request.hold is Hold.FIXED
        after = [own & cpus or own if cpus and not fixed else own for own in masks]
    if wrapper.rebinds and not (plan and after == masks):
        effect = "replaces the affinity mask of its rank"
        remedy = wrapper.remedy or "remove it, and select CPUs with --mask"
        yield WrapperEffect(words=wrapper.text, effect=effect, remedy=remedy)
    if wrapper.sets_memory and any(placement.memory for placement in placements):
        effect = "replaces the memory policy of its rank"
        yield WrapperEffect(words=wrapper.text, effect=effect, remedy="remove it, or omit --memory")


def _find_processes(launch: Launch, plan: Plan | None) -> Iterator[WrapperEffect]:
    remedy = f"use '{launch.instead}' instead"
    if not launch.workers:
        name = launch.text.split()[0]
        effect = f"starts processes, and may bind them by rules of its own; the plan binds only {name}"
        yield WrapperEffect(words=launch.text, effect=effect, remedy=remedy)
    elif launch.text == "parallel" and plan and len(plan.placements) > 1:
        effect = f"starts all jobs in each of {len(plan.placements)} ranks"
        remedy = f"for a queue, write 'parallel -j {launch.workers} ompbind exec -c 1 --avoid --wait -- ...'"
        yield WrapperEffect(words=launch.text, effect=effect, remedy=remedy, code=WRAPPER_THREADS)
    elif not (plan and all(_fit(launch, placement) for placement in plan.placements)):
        effect = f"starts several processes ({launch.workers}), which share the CPUs of one rank"
        is_number = whole_number(launch.workers) is not None
        most = max(placement.process_threads for placement in plan.placements) if plan else 0
        threads = f", each with {count(most, 'thread') if most else 'as many threads as the rank has'}"
        if launch.jobs and not is_number:
            effect = f"starts several commands at a time ({launch.workers}){threads}"
            remedy = "if they use their threads, add -t 1, or see 'ompbind help queue'"
        elif launch.jobs:
            effect = f"starts up to {launch.workers} commands at a time, "
            effect += "more than the rank has threads" if plan else "also if a rank has fewer threads"
            remedy = f"use '--fill -- {launch.instead} ...'"
        elif not launch.instead:
            effect += threads
            remedy = f"add {f'--processes-per-rank {launch.workers}' if is_number else '-t 1'}"
        found = WrapperEffect(words=launch.text, effect=effect, remedy=remedy, code=WRAPPER_THREADS)
        yield found.replace(warning=is_number or not launch.jobs)


def _fit(launch: Launch, placement: Placement) -> bool:
    workers, threads = whole_number(launch.workers), placement.process_threads
    if launch.jobs:
        return threads == 1 if workers is None else workers <= placement.threads
    if not launch.instead and threads == 1:
        return True
    return workers is not None and workers * threads <= len(placement.cpus)
