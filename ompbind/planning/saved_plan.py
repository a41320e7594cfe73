"""A plan that was made before, as `ompbind plan --format json` writes it: what ranks get of it again.

These are the CPUs, places, threads, NUMA nodes, devices, reserved and service CPUs of each rank, the binding
mode and the memory mode. All else in the file has no effect, in particular its variables. The file may come
from anyone: every value is checked before it is used. On a machine, nothing is chosen: CPUs or devices that a
rank cannot have are an error that names the rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from ompbind.cpuset import CPU_LIMIT, CpuSet, named, union
from ompbind.errors import OptionError, PlanError
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.fingerprint import LABELS, Fingerprint, find_difference, make_fingerprint
from ompbind.machine.model import Machine
from ompbind.openmp.binding import Bind, ProcBind, render_places
from ompbind.planning.plan import Placement
from ompbind.planning.request import MemoryMode, Request, SavedDevice, SavedPlan, SavedRank
from ompbind.planning.runtimes import check_runtimes, find_certain_runtimes

Data: TypeAlias = Mapping[str, Any]

SCHEMA = "ompbind-plan/2"
_READ = ("ompbind-plan/1", SCHEMA)
"""The schemas that are read; version 1 has no groups."""

REMEDY = "make a plan on this machine: ompbind plan --format json"
_LIMIT = 1 << 31
"""Numbers of partitions are smaller."""

_THREAD_LIMIT = 1 << 16
"""Numbers of threads and processes of a rank are smaller: the file may come from anyone."""


def parse_saved_plan(data: object, name: str) -> SavedPlan:
    """Make the plan from a JSON value of schema ompbind-plan/2 or 1; `name` is its file, for messages.

    Raises OptionError, which says which value is wrong.
    """
    try:
        return _parse(_object(data, "the file"), name)
    except ValueError as error:
        hint = "use the output of 'ompbind plan --format json'"
        raise OptionError(f"{name} is not a plan: {error}", hint=hint) from None


def _parse(data: Data, name: str) -> SavedPlan:
    if data.get("schema") not in _READ:
        raise ValueError(f"schema is {_show(data.get('schema'))}, not {SCHEMA!r}")
    machine = _object(_get(data, "machine"), "machine")
    parts = _object(_get(machine, "fingerprint", "machine."), "machine.fingerprint")
    needed = [subject for subject in LABELS if subject in parts or subject not in [*map(str, DeviceKind)]]
    fingerprint = tuple((subject, _word(parts, subject, where="machine.fingerprint.")) for subject in needed)
    made = Fingerprint(parts=fingerprint)
    if "groups" not in data:
        return _parse_part(data, name, made)
    groups = []
    for index, value in enumerate(_list(data, "groups")):
        where = f"groups[{index}]"
        row = _object(value, where)
        try:
            group = _parse_part(row, name, made)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        groups.append(group.replace(group=_word(row, "group", where=f"{where}.")))
    if not groups:
        raise ValueError("groups is empty")
    ranks = tuple(rank for group in groups for rank in group.ranks)
    return groups[0].replace(ranks=ranks, group="", groups=tuple(groups))


def _parse_part(data: Data, name: str, fingerprint: Fingerprint) -> SavedPlan:
    """Make the plan of a group, or of a run without groups, for the machine with this fingerprint."""
    request = _object(_get(data, "request"), "request")
    ranks = _list(data, "ranks")
    if not ranks:
        raise ValueError("ranks is empty")
    saved = SavedPlan(
        name=name,
        fingerprint=fingerprint,
        bind=Bind.NONE if request.get("mask") == "none" else Bind(_word(request, "bind", Bind)),
        proc_bind=ProcBind(_word(request, "proc_bind", ProcBind)),
        memory=_word(request, "memory"),
        ranks=tuple(_parse_rank(row, number) for number, row in enumerate(ranks)),
    )
    if used := saved.used & union(rank.reserved for rank in saved.ranks):
        raise ValueError(f"CPUs {used} are reserved, but ranks have them")
    return saved


def _parse_rank(value: object, number: int) -> SavedRank:
    where = f"ranks[{number}]"
    row, inside = _object(value, where), f"{where}."
    if _get(row, "rank", inside) != number or isinstance(row["rank"], bool):
        raise ValueError(
            f"{inside}rank is {_show(row['rank'])}, not {number}: all ranks are needed, in order"
        )
    cpus = _numbers(row, "cpus", inside)
    places = tuple(
        _cpus(place, f"{inside}places[{index}]") for index, place in enumerate(_list(row, "places", inside))
    )
    rank = SavedRank(
        cpus=cpus,
        places=places,
        places_text=(render_places(places) or "") if places else "",
        threads=_number(_get(row, "threads", inside), f"{inside}threads", _THREAD_LIMIT),
        processes=_number(row.get("processes", 1), f"{inside}processes", _THREAD_LIMIT),
        nodes=_numbers(row, "nodes", inside),
        memory_nodes=_numbers(row, "memory_nodes", inside),
        devices=tuple(
            _parse_device(device, f"{inside}devices[{index}]")
            for index, device in enumerate(_list(row, "devices", inside))
        ),
        reserved=_cpus(_get(row, "reserved", inside), f"{inside}reserved"),
        service_cpus=_cpus(_get(row, "service_cpus", inside), f"{inside}service_cpus"),
    )
    _check_rank(rank, where)
    return rank


def _check_rank(rank: SavedRank, where: str) -> None:
    """Raise ValueError for values of a rank that contradict each other."""
    if not rank.cpus:
        raise ValueError(f"{where}.cpus is empty")
    if len(set(rank.cpus)) < len(rank.cpus) or not rank.service_cpus.isdisjoint(CpuSet(rank.cpus)):
        raise ValueError(f"{where} has a CPU twice")
    if len({(device.address, device.partition) for device in rank.devices}) < len(rank.devices):
        raise ValueError(f"{where} has a device twice")
    if not (rank.threads and rank.processes):
        raise ValueError(f"{where}.{'processes' if rank.threads else 'threads'} is 0")
    outside = union(rank.places) - rank.cpuset
    if outside or not all(rank.places):
        wrong = f"has CPUs {outside}, which the rank has not" if outside else "has a place without CPUs"
        raise ValueError(f"{where}.places {wrong}")
    if rank.places and not rank.places_text:
        raise ValueError(f"{where}.places is too long for OMP_PLACES")


def _parse_device(value: object, where: str) -> SavedDevice:
    row, inside = _object(value, where), f"{where}."
    partition = row.get("partition")
    return SavedDevice(
        name=_word(row, "device", where=inside),
        kind=DeviceKind(_word(row, "kind", DeviceKind, where=inside)),
        address=_word(row, "address", where=inside),
        partition=None if partition is None else _number(partition, f"{inside}partition", _LIMIT),
    )


def _get(row: Data, key: str, inside: str = "") -> object:
    if key not in row:
        raise ValueError(f"{inside}{key} is missing")
    return row[key]


def _object(value: object, where: str) -> Data:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    return value


def _list(row: Data, key: str, inside: str = "") -> list[object]:
    value, where = _get(row, key, inside), f"{inside}{key}"
    if not isinstance(value, list):
        raise ValueError(f"{where} is not an array")
    return value


def _word(
    row: Data, key: str, words: type[Bind | ProcBind | DeviceKind] | None = None, *, where: str = "request."
) -> str:
    """Return a text; if `words` are given, one of them."""
    value = _get(row, key, where)
    if not isinstance(value, str) or (words and value not in [*map(str, words)]):
        raise ValueError(f"{where}{key} is {_show(value)}, not {', '.join(map(str, words or ('a text',)))}")
    return value


def _numbers(row: Data, key: str, inside: str) -> tuple[int, ...]:
    """Return numbers of CPUs or of NUMA nodes."""
    return tuple(_number(value, f"{inside}{key}", CPU_LIMIT) for value in _list(row, key, inside))


def _number(value: object, where: str, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise ValueError(f"{where} has {_show(value)}, not a number from 0 to {limit - 1}")
    return value


def _cpus(value: object, where: str) -> CpuSet:
    if not isinstance(value, str):
        raise ValueError(f"{where} is {_show(value)}, not a list of CPUs as text")
    try:
        return CpuSet.from_list(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _show(value: object) -> str:
    """Return a value of the file for a message, cut if it is long."""
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def place_saved_ranks(machine: Machine, request: Request) -> tuple[Request, list[Placement]]:
    """Return the request with what `request.plan` decides for all ranks, and their placements.

    Raises PlanError if it is a plan for another machine, or if a rank may not use what the plan gives it.
    """
    saved = request.plan
    assert saved is not None
    _check_machine(saved, machine)
    if saved.memory not in map(str, MemoryMode):
        raise PlanError(f"{saved.name}: {saved.memory!r} is not a memory mode", hint=REMEDY)
    request = request.replace(
        ranks=len(saved.ranks), bind=saved.bind, proc_bind=saved.proc_bind, memory=MemoryMode(saved.memory)
    )
    check_runtimes(find_certain_runtimes(request))
    return request, [_place(request, machine, saved, rank) for rank in range(len(saved.ranks))]


def _check_machine(saved: SavedPlan, machine: Machine) -> None:
    """Raise PlanError if the plan is for a machine with another fingerprint; the error says what differs."""
    own = make_fingerprint(machine)
    subject = find_difference(saved.fingerprint, own, saved.device_kinds)
    if not subject:
        return
    theirs, ours = (each.as_dict().get(subject, "0:") for each in (saved.fingerprint, own))
    label, numbers = LABELS[subject], (theirs.partition(":")[0], ours.partition(":")[0])
    why = f"the {label} differ"
    if subject == "arch":
        why = f"its {label} is {theirs}, that of this machine {ours}"
    elif numbers[0] != numbers[1]:
        why = f"its machine has {numbers[0]} {label}, this machine {numbers[1]}"
    raise PlanError(f"{saved.name} is a plan for another machine: {why}", hint=REMEDY)


def _place(request: Request, machine: Machine, saved: SavedPlan, rank: int) -> Placement:
    """Return the placement of one rank; raises PlanError if it may not use its CPUs, memory or devices."""
    row = saved.ranks[rank]
    if missing := row.cpuset - machine.allowed:
        is_or_are = "is" if len(missing) == 1 else "are"
        raise PlanError(
            f"rank {rank}: {named('CPU', missing)} of {saved.name} {is_or_are} not allowed",
            hint=f"only CPUs {machine.allowed} are allowed here; make the plan where ranks start",
        )
    known = CpuSet(node.number for node in machine.nodes)
    if unknown := CpuSet((*row.nodes, *row.memory_nodes)) - known:
        text = f"rank {rank}: {named('NUMA node', unknown)} of {saved.name} does not exist"
        raise PlanError(text, hint=REMEDY)
    allowed = known if machine.memory_allowed is None else machine.memory_allowed
    if missing := CpuSet(row.memory_nodes) - allowed:
        raise PlanError(
            f"rank {rank}: the memory of {named('NUMA node', missing)} of {saved.name} is not allowed",
            hint=f"cpuset.mems allows {allowed or 'none'}; make the plan where ranks start",
        )
    fields = {name: value for name, value in row.as_dict().items() if name != "devices"}
    return Placement(rank=rank, devices=tuple(_find_devices(request, machine, saved, rank)), **fields)


def _find_devices(request: Request, machine: Machine, saved: SavedPlan, rank: int) -> Iterator[Device]:
    """Yield the devices of a rank as this machine has them; raises PlanError for one that is not visible."""
    visible = {device.name for device in request.visible.devices} if request.visible else set[str]()
    present = {(device.kind, device.address, device.partition): device for device in machine.devices}
    for known in saved.ranks[rank].devices:
        device = present.get((known.kind, known.address, known.partition))
        if device is None or device.name not in visible:
            reason = "is not visible" if device else "does not exist"
            raise PlanError(
                f"rank {rank}: {known.name} ({known.address}) of {saved.name} {reason}",
                hint="make the plan where ranks start, with the same visible devices",
            )
        yield device
