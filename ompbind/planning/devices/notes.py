"""The notes of a plan about devices: which ranks are far from theirs, and what stays idle."""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import EMPTY, CpuSet, count, join_words, named, union
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level
from ompbind.planning.devices.assignment import list_deciding
from ompbind.planning.devices.locality import (
    DeviceLocality,
    find_locality,
    find_named_locality,
    measure_distance,
    render_reasons,
    select_devices,
)
from ompbind.planning.plan import Note, Placement, Plan
from ompbind.planning.request import VisibleDevices
from ompbind.planning.strategies import STRATEGIES

FAR, DISTANT = "device-far", "device-distance"
"""Codes of notes: no CPU near a device is allowed, or ranks have CPUs that are not near their devices."""


def explain_devices(plan: Plan) -> Iterator[Note]:
    """Yield notes on the devices of ranks, and on devices that the request names."""
    for word in plan.request.near:
        near = find_named_locality(plan.machine, word)
        if near.is_nearest:
            text = f"no allowed CPU is near {word} ({named('CPU', near.near)})"
            yield Note(code=FAR, text=f"{text}: {named('CPU', near.cpus)} are the nearest", warning=True)
    if not plan.request.devices:
        return
    if not plan.has_devices:
        has_gpus = any(select_devices(plan.machine, plan.request))
        yield Note(code="devices-none", text=_render_none(plan), warning=has_gpus)
        return
    for locality, placements in _find_localities(plan).items():
        yield from _explain_locality(plan, locality, placements)
    if cpus := find_far_idle_cpus(plan):
        cores = plan.machine.at(Level.CORE, cpus)
        text = f"{count(len(cores), 'core')} idle ({named('CPU', cpus)}): near no device of a rank"
        divides_all = not (plan.request.cores or plan.request.near or plan.request.names_cpus)
        remedy = "; --devices none divides all cores among ranks" if divides_all else ""
        yield Note(code="devices-idle", text=f"{text}{remedy}")


def _render_none(plan: Plan) -> str:
    gpus, _ = select_devices(plan.machine, plan.request)
    reasons = render_reasons(DeviceKind.GPU, plan.machine, plan.request)
    if not gpus:
        return f"ranks get no devices: no GPU is visible{reasons}"
    ranks = len(plan.placements) + plan.request.outside_device_ranks
    visible = f"{count(len(gpus), 'GPU')} {'is' if len(gpus) == 1 else 'are'} visible{reasons}"
    each = plan.request.devices_per_rank or 1
    needed = f"{count(ranks, 'rank')} would need {count(ranks * each, 'GPU')}"
    remedy = " (--share-devices lets ranks share them)" if each <= len(gpus) else ""
    return f"ranks get no devices: {visible}, but {needed}{remedy}"


def _find_localities(plan: Plan) -> dict[DeviceLocality, list[Placement]]:
    found: dict[DeviceLocality, list[Placement]] = {}
    for placement in plan.placements:
        locality = find_locality(plan.machine, list_deciding(placement.devices), plan.machine.allowed)
        found.setdefault(locality, []).append(placement)
    return found


def _explain_locality(
    plan: Plan, locality: DeviceLocality, placements: Sequence[Placement]
) -> Iterator[Note]:
    near, local_ranks = locality.near, plan.request.local_ranks
    deciding = dict.fromkeys(device for rank in placements for device in list_deciding(rank.devices))
    devices, shown_near = join_words(deciding), named("CPU", near)
    cpus = union(placement.compute for placement in placements)
    far = CpuSet(placement.rank for placement in placements if not placement.compute <= near)
    ranks = named("rank", (local_ranks[rank] if local_ranks else rank for rank in far))
    has = f"{ranks} {'has' if len(far) == 1 else 'have'} {named('CPU', cpus - near)}"
    if not near:
        text = f"the CPUs near {devices} are not known: all CPUs are equally good for {ranks}"
        yield Note(code="device-unknown", text=text)
    elif locality.is_nearest:
        text = f"no allowed CPU is near {devices} ({shown_near}): {has}"
        yield Note(code=FAR, text=text, warning=True)
    elif far and not STRATEGIES[plan.request.effective_strategy].overlapping:
        is_chosen = plan.request.needs_strategy and not plan.request.outside_ranks
        why = ": too few usable cores are near" if is_chosen else ""
        text = f"{has}, not near {devices} ({shown_near}){why}"
        yield Note(code=DISTANT, text=text, warning=not is_chosen or cpus.isdisjoint(near))


def find_far_idle_cpus(plan: Plan) -> CpuSet:
    """Return the idle CPUs of cores without a rank that are near no device of a rank."""
    if plan.request.names_each_rank or plan.request.outside_ranks:
        return EMPTY  # devices have not decided the CPUs of ranks
    near = union(locality.near or plan.machine.online for locality in _find_localities(plan))
    unused = union(cpus for cpus in plan.machine.table.cores if cpus.isdisjoint(plan.used))
    return unused & plan.idle - near - plan.machine.excluded_by_default


def measure_distances(plan: Plan) -> tuple[int | None, ...]:
    """Return the largest distance of each rank from the devices that decide its CPUs; None if unknown."""
    found: list[int | None] = []
    for rank in plan.placements:
        deciding = list_deciding(rank.devices)
        distances = (measure_distance(plan.machine, rank.compute, device) for device in deciding)
        found.append(max((distance for distance in distances if distance is not None), default=None))
    return tuple(found)


def explain_variables(plan: Plan) -> Iterator[Note]:
    """Explain which devices are not visible, and which variables are not set or override the plan's."""
    visible = plan.request.visible or VisibleDevices()
    with_word = {word.device for word in visible.words}
    given = {device for placement in plan.placements for device in placement.devices}
    is_lacking = any(device.kind is DeviceKind.GPU and device.name not in with_word for device in given)
    for remark in visible.remarks:  # a warning if a rank has a GPU that no variable can give it
        yield Note(code="devices-visible", text=remark, warning=is_lacking)
    used = {word.variable for word in visible.words}
    for name, value in plan.request.user_variables:
        if name in used:
            text = f"{name}={value} (from --env or --keep-env) will override the devices of the plan"
            yield Note(code="devices-overridden", text=text, warning=True)
