"""The notes of a plan on isolated CPUs, and on CPUs that share a core with these."""

from collections.abc import Iterator

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.machine.model import cpus_of_cores
from ompbind.masks.mask import MaskWord
from ompbind.planning.mask_resolution import resolve_mask
from ompbind.planning.occupancy import AvailableCpus
from ompbind.planning.plan import Note, Plan


def explain_isolated(plan: Plan) -> Iterator[Note]:
    """Yield notes on CPUs that are not used because of isolation, and on used siblings of isolated CPUs."""
    yield from _explain_excluded(plan)
    yield from _explain_siblings(plan)


def _explain_excluded(plan: Plan) -> Iterator[Note]:
    """List CPUs of the mask that are isolated, or share a core with isolated CPUs, and are not used."""
    excluded, siblings = plan.idle & plan.machine.excluded_by_default, plan.machine.isolated_siblings
    if not excluded:
        return
    excluded &= _find_requested(plan)
    if isolated := excluded - cpus_of_cores(plan.machine, plan.used) - siblings:
        names = [name for name, cpus in plan.machine.exclusion_reasons if not cpus.isdisjoint(isolated)]
        text = f"not used because {' or '.join(names)}: {named('CPU', isolated)} ({_advise(isolated)})"
        yield Note(code="set-apart", text=text)
    if shared := excluded & siblings:
        verb = "it shares" if len(shared) == 1 else "they share"
        text = f"{named('CPU', shared)} not used: {verb} a core with isolated CPUs ({_advise(shared)})"
        yield Note(code="isolated-siblings", text=text)


def _find_requested(plan: Plan) -> CpuSet:
    """Return the CPUs that the mask or the nodes of a request contain, isolated ones too; without, all."""
    request, machine = plan.request, plan.machine.replace(isolated=EMPTY, nohz_full=EMPTY)
    has_mask = request.mask is not None and request.mask.word is not MaskWord.AUTO
    mask = request.mask if has_mask else request.nodes
    if mask is None:
        return machine.allowed
    parts, _ = resolve_mask(mask, AvailableCpus(machine=machine), allow_partial=True)
    return CpuSet(cpu for part in parts for cpu in part)


def _advise(cpus: CpuSet) -> str:
    it = "it" if len(cpus) == 1 else "them"
    return f"name {it} by number in --mask to use {it}"


def _explain_siblings(plan: Plan) -> Iterator[Note]:
    """Explain that ranks use CPUs that share a core with isolated CPUs without a rank."""
    isolated = union(cpus for _, cpus in plan.machine.exclusion_reasons) & plan.machine.online - plan.used
    siblings = plan.machine.isolated_siblings & plan.used & cpus_of_cores(plan.machine, isolated)
    if siblings:
        verb = "shares" if len(siblings) == 1 else "share"
        shared = cpus_of_cores(plan.machine, siblings) & isolated
        text = f"{named('CPU', siblings)} {verb} a core with isolated {named('CPU', shared)}"
        slower = f"programs on {named('CPU', shared)} run slower"
        yield Note(code="isolated-siblings", text=f"{text}: {slower}")
