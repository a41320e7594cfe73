"""Divide a machine among the groups of a run: groups of ranks with different commands and options.

Groups choose their CPUs one after the other; each finds the CPUs that earlier groups have left:

    1. groups with a mask            the mask names their CPUs
    2. groups that request cores     -c, or -t with a strategy that takes it
    3. all other groups              equal parts of the cores that are left, made as by `-s balanced`
    4. groups with the mask `none`   all CPUs that are left

A group of 2 to 4 gets no core if an earlier group has one of its threads. Groups of 3 that can use only
some CPUs (--core-kind, --near) divide these before groups that can use all. With --share, a group that finds
no core uses those of other groups, and masks may name the same CPUs.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from ompbind.cpuset import EMPTY, CpuSet, count, union
from ompbind.errors import OmpbindError, PlanError, RequestError
from ompbind.machine.model import Machine
from ompbind.planning.allocation import place_ranks
from ompbind.planning.devices.locality import find_usable_devices
from ompbind.planning.draft import OTHER_GROUPS_HINT, Draft, apply_job_cpus
from ompbind.planning.request import Request
from ompbind.planning.strategies import STRATEGIES


@contextmanager
def naming(request: Request) -> Iterator[None]:
    """Add the name of the group to the message of an error."""
    try:
        yield
    except OmpbindError as error:
        error.of_group(request.group)
        raise


def prepare(machine: Machine, requests: Sequence[Request]) -> list[Request]:
    """Return the requests with what they divide: the CPUs that a batch system allows, and devices."""
    names = [request.group for request in requests]
    for name in names or [""]:
        if not name:
            raise RequestError("a group has no name", hint="name each group: Request(group='server', …)")
        if names.count(name) > 1:
            raise RequestError(f"two groups are named {name}", hint="give each group a name of its own")
    ranks = sum(request.rank_count or 1 for request in requests)
    prepared = []
    for request in requests:
        with naming(request):
            others = ranks - (request.rank_count or 1)
            limited = apply_job_cpus(machine, request.replace(outside_ranks=others))
        prepared.append(limited.replace(outside_ranks=0))
    return _divide_devices(machine, prepared)


def _divide_devices(machine: Machine, requests: Sequence[Request]) -> list[Request]:
    """Let groups that get devices see only their part of these, in the order of the groups and devices.

    Only the devices that decide CPUs are divided: GPUs, or interfaces of groups without GPUs. Groups with
    --devices-per-rank see as many as they need; the others divide the rest in proportion to their ranks.
    """
    divided = list(requests)
    for kind in ("gpu", "nic"):
        users = [
            index
            for index, request in enumerate(requests)
            if (request.devices == "auto" and kind == "gpu") or kind in map(str, request.devices[:1])
            if not request.share_devices
        ]
        if len(users) < 2:
            continue
        visible = find_usable_devices(machine, requests[users[0]]).devices
        devices = [device for device in visible if str(device.kind) == kind]
        ranks = {index: requests[index].rank_count or 1 for index in users}
        needs = {index: ranks[index] * (requests[index].devices_per_rank or 0) for index in users}
        rest = max(0, len(devices) - sum(needs.values()))
        sharing = sum(ranks[index] for index in users if not needs[index])
        start = passed = needed = 0
        for index in users:
            needed += needs[index]
            passed += 0 if needs[index] else ranks[index]
            stop = needed + (rest * passed // sharing if sharing else 0)
            others = {device.name for device in (*devices[:start], *devices[stop:])}
            usable = find_usable_devices(machine, requests[index])
            own = tuple(device for device in usable.devices if device.name not in others)
            remarks = (*usable.remarks, f"other groups have {count(len(others), kind.upper())}")
            divided[index] = requests[index].replace(visible=usable.replace(devices=own, remarks=remarks))
            start = stop
    return divided


def _turn(request: Request) -> int:
    """Return when a group chooses its CPUs: 1 to 4, as above."""
    if request.is_unbound:
        return 4
    if request.names_cpus:
        return 1
    return 2 if request.cores or (request.threads and STRATEGIES[request.strategy].sized) else 3


def takes_rest(request: Request) -> bool:
    """Return whether a group gets a part of what is left: it requests neither CPUs nor a number of cores."""
    return _turn(request) == 3


def order(requests: Sequence[Request]) -> list[int]:
    """Return the indices of groups in the order in which they choose their CPUs."""
    return sorted(range(len(requests)), key=lambda index: _turn(requests[index]))


def find_taken(machine: Machine, request: Request, earlier: Iterable[Draft]) -> CpuSet:
    """Return the CPUs that a group cannot have because the groups that have chosen `earlier` have them."""
    turn = _turn(request)
    if request.job_cpus or (request.share and turn == 1):
        return EMPTY
    bound = (draft.placements for draft in earlier if not draft.request.is_unbound)
    taken = union(rank.cpuset | rank.reserved for placements in bound for rank in placements)
    if turn > 1:
        taken = machine.table.whole(taken)
    return EMPTY if request.share and machine.allowed <= taken else taken


def divide_rest(
    machine: Machine, requests: Sequence[Request], avoided: CpuSet, taken: CpuSet
) -> dict[int, CpuSet]:
    """Return the CPUs of each group that gets a part of what is left, by its index, as whole cores.

    Groups that can use the same CPUs have equal parts of them.
    """
    groups: dict[CpuSet, list[int]] = {}  # the groups that can use the same CPUs
    for index, request in enumerate(requests):
        if takes_rest(request):
            with naming(request):
                usable = CpuSet(Draft(machine, request, avoided=avoided, taken=taken).cpus)
            groups.setdefault(usable, []).append(index)
    parts: dict[int, CpuSet] = {}
    for cpus, members in sorted(groups.items(), key=lambda group: len(group[0])):
        left = cpus - union(parts.values())
        equal = Request(ranks=len(members), smt="all", sharing=requests[0].sharing)
        try:
            draft = place_ranks(Draft(machine, equal, avoided=avoided, taken=machine.allowed - left))
            made = [placement.cpuset for placement in draft.placements]
        except PlanError as error:
            if not requests[0].share:
                names = ", ".join(requests[index].group for index in members)
                noun = f"{'groups' if len(members) > 1 else 'group'} {names}"
                text = f"{noun}: only {count(len(left), 'CPU')} left"
                raise PlanError(text, hint=OTHER_GROUPS_HINT) from error
            made = [cpus] * len(members)
        parts |= dict(zip(members, made, strict=True))
    return parts
