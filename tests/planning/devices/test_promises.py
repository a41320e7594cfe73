"""Promises of plans with devices: on all recorded machines, and for all small nested localities."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet, union
from ompbind.errors import PlanError
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level
from ompbind.planning.devices.assignment import divide_near_devices
from ompbind.planning.devices.locality import DeviceLocality, find_locality
from ompbind.planning.placing import Cores
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.planning.strategies import balanced
from tests.machines import Shape, make_machine
from tests.recordings import ABSENT, ANSWERS, read_with_devices

SMALL = make_machine(Shape(packages=2, nodes=2, cores=2))
"""CPUs 0-7: two packages of two NUMA nodes of two cores."""

DOMAINS = [domain.cpus for domain in SMALL.domains if domain.level in (Level.PACKAGE, Level.NODE)]
LOCALITIES = [*dict.fromkeys((*DOMAINS, SMALL.online))]


def divide(chosen):
    cores = Cores(table=SMALL.table, rows=tuple(range(len(SMALL.table.cores))), distances={})
    localities = [DeviceLocality(cpus=cpus, preferred=cpus, near=cpus) for cpus in chosen]
    shares = divide_near_devices(cores, localities, 1, lambda part, ranks: balanced(part, ranks))
    given_cores = [core for share in shares or () for core in share]
    assert shares is None or all(shares)
    assert len(set(given_cores)) == len(given_cores)
    return shares


def largest_shares(chosen):
    """The largest smallest share, and so on, by trying all numbers of cores; None if a rank has no core."""
    fits = [
        counts
        for counts in product(*(range(1, len(cpus) + 1) for cpus in chosen))
        if all(
            sum(counts[rank] for rank in ranks) <= len(union(chosen[rank] for rank in ranks))
            for size in range(1, len(chosen) + 1)
            for ranks in combinations(range(len(chosen)), size)
        )
    ]  # Hall's theorem: every set of ranks has as many cores as it needs
    return max((sorted(counts) for counts in fits), default=None)


@given(st.lists(st.sampled_from(LOCALITIES), min_size=1, max_size=5))
def test_smallest_shares_are_as_large_as_possible(chosen):
    shares, best = divide(chosen), largest_shares(chosen)
    assert shares is not None
    if best is not None:
        assert sorted(map(len, shares)) == best
        assert all(CpuSet(share) <= cpus for share, cpus in zip(shares, chosen, strict=True))


@given(st.lists(st.sets(st.sampled_from(list(SMALL.online)), min_size=1).map(CpuSet), min_size=1, max_size=8))
def test_every_rank_has_cores_even_if_localities_partially_overlap(chosen):
    divide(chosen)


SAMPLE = (
    "prrte-turin-4gpu", "flux-ipa20", "flux-tuo.CPX", "mpibind-eas-tioga", "mpibind-cts1-pascal",
    "mpibind-coral-lassen", "hwlocxml-power8gpudistances",
)  # fmt: skip
SAMPLED = [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.long) for name in ANSWERS]
OPTIONS = [
    {}, {"smt": "all"}, {"strategy": "compact", "threads": 2}, {"strategy": "spread", "cores": 1},
    {"reserve": 1}, {"service_cores": 1}, {"reserve_total": 2},
    {"devices_per_rank": 1}, {"devices": "auto"}, {"devices": (DeviceKind.NIC,)},
    {"devices": (DeviceKind.GPU, DeviceKind.NIC)},
]  # fmt: skip


@pytest.mark.parametrize("name", SAMPLED or [ABSENT])
@given(data=st.data())
def test_plans_of_recorded_machines(name, data):
    machine, share = read_with_devices(name), data.draw(st.booleans())
    options = {**data.draw(st.sampled_from(OPTIONS)), "ranks": data.draw(st.integers(1, 16))}
    request = Request(**{"devices": (DeviceKind.GPU,), **options, "share_devices": share})
    try:
        made = make_plan(machine, request)
    except PlanError:
        check_refusal(machine, request)
        return
    assert made == make_plan(machine, request)
    check_cpus(made)
    check_devices(made, share)
    check_near(made)


def check_refusal(machine, request):
    for kind in request.devices if request.devices != "auto" else ():
        own = [device for device in machine.devices if device.kind is kind and not device.excluded]
        with_rdma = [device for device in own if device.rdma_names or device.pci_class == "0207"]
        usable = with_rdma or own
        needed = 1 if request.share_devices else request.ranks * (request.devices_per_rank or 1)
        if len(usable) < needed or any(device.vendor == "17db" for device in own):
            return
    with pytest.raises(PlanError):
        make_plan(machine, request.replace(devices=(), share_devices=False, devices_per_rank=None))


def check_cpus(made):
    """Every rank has CPUs, no CPU is given twice, and siblings of a core are not given to two ranks."""
    core_of = made.machine.table.core_of
    assert all(placement.cpus for placement in made.placements)
    assert sum(len(placement.cpuset) for placement in made.placements) == len(made.used)
    if len(made.placements) + made.request.reserve_total > len(made.machine.table.cores):
        return  # ranks share cores by hardware threads
    owners = [{core_of[cpu] for cpu in placement.cpuset} for placement in made.placements]
    assert sum(map(len, owners)) == len(set().union(*owners))


def check_devices(made, share):
    given_devices = [device for placement in made.placements for device in placement.devices]
    assert share or len(given_devices) == len(set(given_devices))
    assert all(len(set(p.devices)) == len(p.devices) for p in made.placements)
    if made.request.devices != "auto":
        assert all(placement.devices for placement in made.placements)
    sizes = [len([d for d in p.devices if d.kind is p.devices[0].kind]) for p in made.placements if p.devices]
    assert not sizes or max(sizes) - min(sizes) <= 1


def check_near(made):
    """Ranks are near their devices if the cores suffice, and equal ranks have equal shares."""
    if not made.placements[0].devices:
        return
    deciding = [[d for d in rank.devices if d.kind is rank.devices[0].kind] for rank in made.placements]
    localities = [find_locality(made.machine, devices, made.machine.allowed) for devices in deciding]
    core_of = made.machine.table.core_of
    sizes = {}
    for placement, locality in zip(made.placements, localities, strict=True):
        sizes.setdefault(locality, []).append(len({core_of[cpu] for cpu in placement.cpus}))
    assert all(max(own) - min(own) <= 1 for own in sizes.values())
    if any(note.code == "device-distance" for note in made.notes):
        assert not_enough_cores(made, localities)
        return
    for placement, locality in zip(made.placements, localities, strict=True):
        assert placement.compute <= locality.cpus


def not_enough_cores(made, localities):
    """Whether some localities have fewer usable cores than the ranks that are near no other CPUs need."""
    request = made.request
    need = request.threads or (request.cores or 1) + request.other_cores
    reserved = made.reserved if request.reserve_total else CpuSet()
    core_of = made.machine.table.core_of
    for outer in localities:
        inside = sum(locality.cpus <= outer.cpus for locality in localities)
        if inside * need > len({core_of[cpu] for cpu in outer.cpus - reserved}):
            return True
    return len(made.placements) > len(made.machine.at(Level.CORE))
