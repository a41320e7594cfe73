"""A plan that was made before, as `ompbind plan --format json` writes it: the parts that are used again.

These are the CPUs, places, threads, NUMA nodes, devices, reserved and service CPUs of each rank, the binding
mode and the memory mode. All else in the file has no effect, in particular its variables. The file may come
from anyone: every value is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from ompbind.cpuset import CPU_LIMIT, CpuSet, union
from ompbind.errors import OptionError
from ompbind.machine.devices import DeviceKind
from ompbind.machine.fingerprint import LABELS, Fingerprint
from ompbind.openmp.binding import Bind, ProcBind
from ompbind.openmp.places import render_places
from ompbind.record import Record

Data: TypeAlias = Mapping[str, Any]

SCHEMA = "ompbind-plan/1"
REMEDY = "make a plan on this machine: ompbind plan --format json"
_LIMIT = 1 << 31
"""Numbers of threads and partitions are smaller: OpenMP reads numbers of 31 bits."""


class SavedDevice(Record):
    """A device of a rank, by its PCI address and the number of its partition; `name` is for messages."""

    name: str
    kind: DeviceKind
    address: str
    partition: int | None = None


class SavedRank(Record):
    """What a rank gets; the fields have the meaning of the fields of `Placement`."""

    cpus: tuple[int, ...]
    places: tuple[CpuSet, ...]
    threads: int
    nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...]
    devices: tuple[SavedDevice, ...]
    reserved: CpuSet
    service_cpus: CpuSet

    @property
    def cpuset(self) -> CpuSet:
        """All CPUs of the rank, with the service CPUs."""
        return CpuSet(self.cpus) | self.service_cpus


class SavedPlan(Record):
    """A plan that was made before; `name` is its file, `memory` the word of its memory mode."""

    name: str
    fingerprint: Fingerprint
    bind: Bind
    proc_bind: ProcBind
    memory: str
    ranks: tuple[SavedRank, ...]

    @property
    def device_kinds(self) -> tuple[DeviceKind, ...]:
        """The kinds of devices that ranks get."""
        return tuple(dict.fromkeys(device.kind for rank in self.ranks for device in rank.devices))

    @property
    def used(self) -> CpuSet:
        """The CPUs of all ranks."""
        return union(rank.cpuset for rank in self.ranks)

    def choose(self, rank: int) -> SavedPlan:
        """Return the plan with one of its ranks only."""
        return self.replace(ranks=(self.ranks[rank],))


def parse_saved_plan(data: object, name: str) -> SavedPlan:
    """Make the plan from a JSON value of schema ompbind-plan/1; `name` is its file, for messages.

    Raises OptionError, which says which value is wrong.
    """
    try:
        return _parse(_object(data, "the file"), name)
    except ValueError as error:
        hint = "use the output of 'ompbind plan --format json'"
        raise OptionError(f"{name} is not a plan: {error}", hint=hint) from None


def _parse(data: Data, name: str) -> SavedPlan:
    if data.get("schema") != SCHEMA:
        raise ValueError(f"schema is {_show(data.get('schema'))}, not {SCHEMA!r}")
    request = _object(_get(data, "request"), "request")
    ranks = _list(_get(data, "ranks"), "ranks")
    if not ranks:
        raise ValueError("ranks is empty")
    saved = SavedPlan(
        name=name,
        fingerprint=_fingerprint(_object(_get(data, "machine"), "machine")),
        bind=Bind.NONE if request.get("mask") == "none" else Bind(_word(request, "bind", Bind)),
        proc_bind=ProcBind(_word(request, "proc_bind", ProcBind)),
        memory=_word(request, "memory"),
        ranks=tuple(_rank(row, number) for number, row in enumerate(ranks)),
    )
    if used := saved.used & union(rank.reserved for rank in saved.ranks):
        raise ValueError(f"CPUs {used} are reserved, but ranks have them")
    return saved


def _fingerprint(machine: Data) -> Fingerprint:
    parts = _object(_get(machine, "fingerprint", "machine."), "machine.fingerprint")
    needed = [subject for subject in LABELS if subject in parts or subject not in [*map(str, DeviceKind)]]
    where = "machine.fingerprint."
    return Fingerprint(parts=tuple((subject, _word(parts, subject, where=where)) for subject in needed))


def _rank(value: object, number: int) -> SavedRank:
    where = f"ranks[{number}]"
    row, inside = _object(value, where), f"{where}."
    if _get(row, "rank", inside) != number or isinstance(row["rank"], bool):
        raise ValueError(
            f"{inside}rank is {_show(row['rank'])}, not {number}: all ranks are needed, in order"
        )
    cpus = _numbers(row, "cpus", inside, CPU_LIMIT)
    places = _list(_get(row, "places", inside), f"{inside}places")
    rank = SavedRank(
        cpus=cpus,
        places=tuple(_cpus(place, f"{inside}places[{index}]") for index, place in enumerate(places)),
        threads=_number(_get(row, "threads", inside), f"{inside}threads", _LIMIT),
        nodes=_numbers(row, "nodes", inside, CPU_LIMIT),
        memory_nodes=_numbers(row, "memory_nodes", inside, CPU_LIMIT),
        devices=_devices(row, inside),
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
    if not rank.threads:
        raise ValueError(f"{where}.threads is 0")
    outside = union(rank.places) - rank.cpuset
    if outside or not all(rank.places):
        wrong = f"has CPUs {outside}, which the rank has not" if outside else "has a place without CPUs"
        raise ValueError(f"{where}.places {wrong}")
    if rank.places and render_places(rank.places) is None:
        raise ValueError(f"{where}.places is too long for OMP_PLACES")


def _devices(row: Data, inside: str) -> tuple[SavedDevice, ...]:
    values = _list(_get(row, "devices", inside), f"{inside}devices")
    return tuple(_device(value, f"{inside}devices[{index}]") for index, value in enumerate(values))


def _device(value: object, where: str) -> SavedDevice:
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


def _list(value: object, where: str) -> list[object]:
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


def _numbers(row: Data, key: str, inside: str, limit: int) -> tuple[int, ...]:
    where = f"{inside}{key}"
    return tuple(_number(value, where, limit) for value in _list(_get(row, key, inside), where))


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


_SHOWN = 40


def _show(value: object) -> str:
    """Return a value of the file for a message, cut if it is long."""
    text = "missing" if value is None else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
