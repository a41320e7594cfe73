"""Which rank gets which devices.

Ranks get devices in device order: rank 0 the first ones, and so on. For 8 GPUs:

    2 ranks                        0 1 2 3 | 4 5 6 7
    3 ranks                        0 1 2 | 3 4 | 5 6 7
    2 ranks, 1 device per rank     0 | 1
    16 ranks that share devices    0 | 0 | 1 | 1 | 2 | 2 | …

If ranks also get network interfaces, GPUs decide the CPUs, and each rank gets the nearest interfaces.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from ompbind.cpuset import CpuSet, count
from ompbind.errors import PlanError
from ompbind.machine.devices import Device
from ompbind.machine.model import Machine
from ompbind.planning.devices.locality import (
    DeviceLocality,
    SelectedDevices,
    count_devices,
    find_locality,
    find_near,
    measure_distance,
    render_reasons,
    select_devices,
)
from ompbind.planning.devices.shares import divide_near_devices
from ompbind.planning.draft import Draft
from ompbind.planning.placing import Cores, Rows
from ompbind.planning.plan import Placement
from ompbind.planning.request import Request
from ompbind.planning.sized import RequestedCores
from ompbind.planning.strategies import STRATEGIES

DeviceGroups: TypeAlias = tuple[tuple[Device, ...], ...]
"""The devices of each rank."""

_UNKNOWN_DISTANCE = 255
"""The distance of a device if its CPUs are not known; ACPI uses it for nodes that cannot be reached."""


def add_devices(draft: Draft) -> None:
    """Set the devices of each rank, and the number of ranks if that was open.

    Raises PlanError if requested devices are not visible, or are too few.
    """
    request = draft.request
    selected = select_devices(draft.machine, request)
    ranks = len(draft.cpus_by_rank) or request.ranks or _count_ranks(draft.machine, selected, request)
    if not ranks or gets_none(selected, request, ranks):
        return
    draft.request = request = request.replace(ranks=ranks)
    devices = _assign(draft.machine, request, selected, CpuSet(draft.cpus))
    local_ranks = request.local_ranks if request.outside_device_ranks else range(ranks)
    draft.devices = tuple(devices[rank] for rank in local_ranks)


def divide_near(draft: Draft, cores: Cores, requested: RequestedCores | None) -> list[Rows]:
    """Return the cores of each rank, near its devices; the strategy divides cores among equal ranks.

    A rank that a launcher has bound keeps its CPUs.
    """
    request, divide = draft.request, STRATEGIES[draft.request.strategy].divide
    if not request.outside_ranks:
        near = divide_near_devices(
            cores,
            _find_localities(draft),
            requested.total if requested else 1 + request.other_cores,
            lambda part, ranks: divide(part, ranks, requested),
            is_exact=requested is not None,
        )
        if near is not None:
            return near
    return divide(cores, len(draft.devices), requested)


def exchange_cpus(draft: Draft, placements: Sequence[Placement]) -> list[Placement]:
    """Return placements of ranks that share cores, in the order of the cores near their devices."""
    core_of = draft.machine.table.core_of
    localities = _find_localities(draft)
    first_cores = [min(core_of[cpu] for cpu in locality.preferred) for locality in localities]
    ranks = sorted(range(len(localities)), key=first_cores.__getitem__)
    exchanged = (placement.replace(rank=rank) for rank, placement in zip(ranks, placements, strict=True))
    return sorted(exchanged, key=lambda placement: placement.rank)


def _find_localities(draft: Draft) -> list[DeviceLocality]:
    """Return for each rank the CPUs that it may use near the devices that decide its CPUs."""
    cpus = CpuSet(draft.cpus)
    return [find_locality(draft.machine, list_deciding(devices), cpus) for devices in draft.devices]


def list_deciding(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices of a rank that decide its CPUs: its GPUs if it has some."""
    return tuple(device for device in devices if device.kind is devices[0].kind)


def _count_ranks(machine: Machine, selected: SelectedDevices, request: Request) -> int:
    """Return the number of ranks if it is open: one for each device; 0 without devices."""
    each = request.devices_per_rank or 1
    if selected.main and len(selected.main) < each:
        if request.devices == "auto":
            return 0
        raise _too_few_error(machine, selected.main, request, 1)
    return len(selected.main) // each


def gets_none(selected: SelectedDevices, request: Request, ranks: int) -> bool:
    """Return whether ranks get no devices, because the request leaves this open and GPUs are too few."""
    users = 1 if request.share_devices else ranks + request.outside_device_ranks
    needed = users * (request.devices_per_rank or 1)
    return not selected.main or (request.devices == "auto" and needed > len(selected.main))


def _assign(machine: Machine, request: Request, selected: SelectedDevices, cpus: CpuSet) -> DeviceGroups:
    """Return the devices of all ranks on this machine, those outside the plan too."""
    main = selected.main
    ranks = (request.ranks or 1) + request.outside_device_ranks
    groups = _divide(machine, main, request, ranks)
    if len(groups) < ranks:
        groups = _let_share(machine, groups, ranks, cpus)
    if not selected.others:
        return groups
    nearest = _assign_nearest(machine, request, selected.others, groups)
    return tuple(own + near for own, near in zip(groups, nearest, strict=True))


def _divide(machine: Machine, devices: Sequence[Device], request: Request, ranks: int) -> DeviceGroups:
    """Divide devices among ranks, in this order: groups whose sizes differ by at most one, or of K devices.

    With --share-devices, there can be fewer groups than ranks. Raises PlanError for too few devices.
    """
    each = request.devices_per_rank
    groups = min(ranks, len(devices) // (each or 1))
    if groups < (1 if request.share_devices else ranks):
        raise _too_few_error(machine, devices, request, ranks)
    size, larger = (each, 0) if each else divmod(len(devices), groups)
    starts = [group * size + min(group, larger) for group in range(groups + 1)]
    if larger:
        starts = _choose_starts(machine, devices, groups)
    return tuple(tuple(devices[start:stop]) for start, stop in pairwise(starts))


def _let_share(machine: Machine, groups: DeviceGroups, ranks: int, cpus: CpuSet) -> DeviceGroups:
    """Return the devices of each rank, if ranks share groups of devices.

    The numbers of ranks per group differ by at most one. The larger numbers are where ranks have most CPUs
    near their devices, and among equal places evenly spread.
    """
    least, larger = divmod(ranks, len(groups))
    near = [find_locality(machine, group, cpus).cpus for group in groups]
    evenly = [rank * len(groups) // ranks for rank in range(ranks)]
    users = [least] * len(groups)

    def rate(group: int) -> tuple[float, int]:
        there = sum(number for number, other in zip(users, near, strict=True) if other == near[group])
        return len(near[group]) / (there + 1), evenly.count(group)

    for _ in range(larger):
        users[max((group for group, number in enumerate(users) if number == least), key=rate)] += 1
    return tuple(group for group, number in zip(groups, users, strict=True) for _ in range(number))


def _choose_starts(machine: Machine, devices: Sequence[Device], groups: int) -> list[int]:
    """Return the first device of each group, and the end, for groups whose sizes differ by one.

    The domains around the devices of each group are as small as possible. Among equal choices, larger groups
    are spread evenly, else first. `best` maps how many devices are used to the cost and the starts.
    """
    number, size = len(devices), len(devices) // groups
    widths: dict[tuple[int, int], int] = {}
    best: dict[int, tuple[int, int, list[int]]] = {0: (0, 0, [0])}
    for group in range(1, groups + 1):
        found: dict[int, tuple[int, int, list[int]]] = {}
        for start, (width, offset, starts) in best.items():
            for stop in (start + size + 1, start + size):
                left = number - stop - (groups - group) * size
                if not 0 <= left <= groups - group:
                    continue  # the other groups could not use all other devices
                if (start, stop) not in widths:
                    around = find_locality(machine, devices[start:stop], machine.online).cpus
                    widths[start, stop] = len(around)
                distance = (stop * groups - group * number) ** 2
                cost = (width + widths[start, stop], offset + distance, [*starts, stop])
                if stop not in found or cost[:2] < found[stop][:2]:
                    found[stop] = cost
        best = found
    return best[number][2]


def _too_few_error(machine: Machine, devices: Sequence[Device], request: Request, ranks: int) -> PlanError:
    each, have = request.devices_per_rank or 1, len(devices)
    verb = "is" if have == 1 else "are"
    of_each = f" with {count_devices(each, devices)} each" if each > 1 else ""
    need = f"{count(ranks, 'rank')}{of_each} {'needs' if ranks == 1 else 'need'}"
    message = f"{need} {count_devices(ranks * each, devices)}, but {have} {verb} visible"
    fewer = (
        f"start at most {count(have // each, 'rank')}"
        if have >= each
        else f"use at most {have} devices per rank"
    )
    share = ", or let ranks share devices with --share-devices" if have >= each else ""
    reasons = render_reasons(devices[0].kind, machine, request)
    return PlanError(message + reasons, hint=fewer + share)


def _assign_nearest(
    machine: Machine, request: Request, others: Sequence[Device], groups: DeviceGroups
) -> DeviceGroups:
    """Return the nearest of the other devices for each rank: K, or as many as all ranks can have.

    Without K, a rank gets no device that is farther than its nearest one. A device has one rank, or with
    --share-devices as few ranks as possible. Close pairs are made first; among equally close pairs, first the
    pairs of ranks near few CPUs, then in the order of ranks and devices.
    """
    ranks = len(groups)
    each = request.devices_per_rank or max(1, len(others) // ranks)
    if ranks * each > len(others) and (not request.share_devices or each > len(others)):
        raise _too_few_error(machine, others, request, ranks)
    near = [[find_near(machine, device) for device in group] for group in groups]
    widths = [min(len(cpus) for cpus in sets) for sets in near]
    distances = [[_measure(machine, sets, other) for other in others] for sets in near]
    pairs = sorted(
        (distance, widths[rank], rank, index)
        for rank, row in enumerate(distances)
        for index, distance in enumerate(row)
    )
    chosen = _choose_pairs([pair[2:] for pair in pairs], each, ranks=ranks, devices=len(others))
    if not request.devices_per_rank:
        for row, indices in zip(distances, chosen, strict=True):
            indices[:] = [index for index in indices if row[index] == min(row[other] for other in indices)]
    return tuple(tuple(others[index] for index in sorted(indices)) for indices in chosen)


def _choose_pairs(
    pairs: Sequence[tuple[int, int]], each: int, *, ranks: int, devices: int
) -> list[list[int]]:
    """Choose `each` devices for every rank from (rank, device) pairs, the best first.

    No device gets more ranks than necessary, if possible.
    """
    most = -(-ranks * each // devices)
    chosen: list[list[int]] = [[] for _ in range(ranks)]
    users = [0] * devices
    for limit in (most, ranks):
        for number in range(1, each + 1):
            for rank, index in pairs:
                if len(chosen[rank]) < number and index not in chosen[rank] and users[index] < limit:
                    chosen[rank].append(index)
                    users[index] += 1
    return chosen


def _measure(machine: Machine, near: Iterable[CpuSet], other: Device) -> int:
    """Return the distance of a device from the nearest of some sets of CPUs."""
    distances = (measure_distance(machine, cpus, other) for cpus in near if cpus)
    return min((distance for distance in distances if distance is not None), default=_UNKNOWN_DISTANCE)
