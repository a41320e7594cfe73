"""No rank is farther from its devices than other launchers would put it, on each recorded machine.

The reference functions are written from the descriptions and sources of these programs:

- PRRTE `--map-by device=gpu` (pull requests 2667 and 2671 of openpmix/prrte, August 2026): one process per
  device; it gets CPUs local to the device. With `ndev=N` a process has several devices, and the CPUs of
  their common ancestor.
- mpibind (`src/internals.c` of LLNL/mpibind): tasks are divided among the NUMA nodes by the number of their
  GPUs. A node divides its cores and GPUs among its tasks. Fewer tasks than nodes get whole nodes.
- `torch.numa.binding` of PyTorch 2.9: the node or the package of a GPU, or a part of it. An unknown node is
  taken for node 0.
"""

from collections import Counter
from itertools import accumulate, pairwise

import pytest

from ompbind.cpuset import CpuSet, union
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level
from ompbind.planning.devices.locality import find_common_domain, find_near, measure_distance
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.planning.devices.test_promises import SAMPLED
from tests.recordings import ABSENT, read_with_devices


def read_gpus(name):
    machine = read_with_devices(name)
    return machine, [device for device in machine.devices if device.kind is DeviceKind.GPU]


def split(items, parts):
    """Contiguous groups whose sizes differ by at most one, larger groups first."""
    size, larger = divmod(len(items), parts)
    starts = [0, *accumulate(size + (part < larger) for part in range(parts))]
    return [items[start:stop] for start, stop in pairwise(starts)]


def node_of(machine, gpu):
    """The NUMA node of a GPU, as sysfs has it; unknown nodes are taken for node 0."""
    near = find_near(machine, gpu)
    nodes = machine.at(Level.NODE)
    return next((node for node in nodes if not near.isdisjoint(node.cpus)), nodes[0])


def near_one_device(machine, gpus):
    """PRRTE, and both of `torch.numa.binding`: the node or the package of each GPU."""
    nodes = [node_of(machine, gpu).cpus for gpu in gpus]
    packages = [machine.at(Level.PACKAGE, CpuSet([cpus.first]))[0].cpus for cpus in nodes]
    for sets in (nodes, packages):
        yield [((gpu,), cpus & machine.allowed) for gpu, cpus in zip(gpus, sets, strict=True)]


def prrte_several(machine, groups):
    """PRRTE with `ndev`: the CPUs of the common ancestor."""
    sets = ([find_near(machine, gpu) for gpu in group] for group in groups)
    ancestors = (find_common_domain(machine, union(near)) if len({*near}) > 1 else near[0] for near in sets)
    return [(group, cpus & machine.allowed) for group, cpus in zip(groups, ancestors, strict=True)]


def split_by_gpus(ranks, numbers):
    """The tasks of each node: its share by its GPUs, rounded down; the largest remainders get one more."""
    shares = [divmod(ranks * number, sum(numbers)) for number in numbers]
    left = ranks - sum(share for share, _ in shares)
    larger = sorted(range(len(numbers)), key=lambda node: -shares[node][1])[:left]
    return [share + (node in larger) for node, (share, _) in enumerate(shares)]


def mpibind(machine, gpus, ranks):
    """The devices and the domain of each task; nothing where tasks would share cores."""
    nodes = machine.at(Level.NODE)
    if ranks < len(nodes):
        parts = [(own, union(node.cpus for node in own) & machine.allowed) for own in split(nodes, ranks)]
        return [(tuple(gpu for gpu in gpus if node_of(machine, gpu) in own), cpus) for own, cpus in parts]
    found = {node: [gpu for gpu in gpus if node_of(machine, gpu) == node] for node in nodes}
    on_nodes, rows = {node: own for node, own in found.items() if own}, []
    numbers = split_by_gpus(ranks, [*map(len, on_nodes.values())])
    for (node, own), tasks in zip(on_nodes.items(), numbers, strict=True):
        if len(machine.at(Level.CORE, node.cpus & machine.allowed)) < tasks:
            return []
        shared = [(own[task * len(own) // tasks],) for task in range(tasks)]
        given = shared if len(own) < tasks else map(tuple, split(own, tasks) if tasks else ())
        rows += [(devices, node.cpus & machine.allowed) for devices in given]
    return rows


def ours(machine, ranks, **options):
    request = Request(ranks=ranks, devices=(DeviceKind.GPU,), smt="all", **options)
    return [(placement.devices, placement.cpuset) for placement in make_plan(machine, request).placements]


def distance(machine, row):
    """The NUMA distance of a rank from its devices, and whether it has CPUs that are not near them all."""
    devices, cpus = row
    numa = max((measure_distance(machine, cpus, device) or 0 for device in devices), default=0)
    return numa, not all(cpus <= find_near(machine, device) for device in devices)


def assert_no_farther(machine, made, other):
    distances = [(distance(machine, a), distance(machine, b)) for a, b in zip(made, other, strict=True)]
    assert all(a <= b for a, b in distances), distances


@pytest.mark.parametrize("name", SAMPLED or [ABSENT])
def test_prrte_and_torch_numa(name):
    machine, gpus = read_gpus(name)
    if not gpus:
        return
    made = ours(machine, len(gpus))
    for other in near_one_device(machine, gpus):
        assert_no_farther(machine, made, other)
    for each in (2, 4):
        if ranks := len(gpus) // each:
            groups = [tuple(gpus[each * rank : each * rank + each]) for rank in range(ranks)]
            several = ours(machine, ranks, devices_per_rank=each)
            assert_no_farther(machine, several, prrte_several(machine, groups))


def count_users(rows):
    return max(Counter(device.name for devices, _ in rows for device in devices).values())


@pytest.mark.parametrize("name", SAMPLED or [ABSENT])
def test_mpibind(name):
    """Where mpibind gives ranks whole cores and equal numbers of devices, or one more, as ompbind does.

    On some machines it gives equal numbers of cores instead, and lets more ranks share a device.
    """
    machine, gpus = read_gpus(name)
    compared = 0
    for ranks in range(1, 17) if gpus else ():
        other = mpibind(machine, gpus, ranks)
        sizes = {len(devices) for devices, _ in other} or {0}
        if max(sizes) - min(sizes) > 1 or 0 in sizes:
            continue
        made = ours(machine, ranks, share_devices=True)
        if count_users(other) > count_users(made) or (ranks > len(gpus) and ranks % len(gpus)):
            continue  # of unequal numbers of ranks per device, ompbind spreads the larger ones evenly
        compared += 1
        near, other_near = (max(distance(machine, row) for row in rows) for rows in (made, other))
        assert near <= other_near, ranks
    assert compared or not gpus
