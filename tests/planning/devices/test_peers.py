"""Plans with devices, compared with what other launchers would do on each recorded machine.

The reference functions are written from the descriptions and sources of these programs:

- PRRTE `--map-by device=gpu` (pull requests 2667 and 2671 of openpmix/prrte, August 2026): one process per
  device in the order of PCI addresses; it gets CPUs local to the device with `--bind-to numa` or `core`.
  With `ndev=N` a process has several devices, and the CPUs of their common ancestor.
- mpibind (`src/internals.c` of LLNL/mpibind): tasks are divided among the NUMA nodes with GPUs, evenly at
  commit 02aeff0b, and by the number of their GPUs later. A node divides its cores and GPUs among its tasks.
  Fewer tasks than nodes get whole nodes.
- `torch.numa.binding` of PyTorch 2.9: the node or the package of a GPU, an exclusive share of the cores of
  its node, or a group of cores with a common L3 cache. An unknown node is taken for node 0.
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


def cores_in(machine, cpus):
    """The allowed CPUs of each core in a set of CPUs."""
    allowed = cpus & machine.allowed
    return [core.cpus & allowed for core in machine.at(Level.CORE, allowed)]


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


def prrte(machine, gpus, bind):
    used = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.address):
        cores = cores_in(machine, node_of(machine, gpu).cpus)
        position = sum(node_of(machine, other) == node_of(machine, gpu) for other in used)
        used[gpu] = union(cores) if bind == "numa" else cores[position % len(cores)]
    return [((gpu,), used[gpu]) for gpu in gpus]


def prrte_several(machine, groups):
    """PRRTE with `ndev`: the CPUs of the common ancestor."""
    sets = ([find_near(machine, gpu) for gpu in group] for group in groups)
    ancestors = (find_common_domain(machine, union(near)) if len({*near}) > 1 else near[0] for near in sets)
    return [(group, cpus & machine.allowed) for group, cpus in zip(groups, ancestors, strict=True)]


def torch_numa(machine, gpus, mode):
    nodes = [node_of(machine, gpu) for gpu in gpus]
    found = []
    for index, (gpu, node) in enumerate(zip(gpus, nodes, strict=True)):
        position = nodes[:index].count(node)
        cores = cores_in(machine, node.cpus)
        if mode == "exclusive":
            cores = split(cores, nodes.count(node))[position]
        elif mode == "socket":
            package = machine.at(Level.PACKAGE, CpuSet([node.cpus.first]))[0]
            cores = cores_in(machine, package.cpus)
        elif mode == "core-complex":
            caches = machine.at(Level.L3, node.cpus) or (node,)
            by_size = sorted(caches, key=lambda cache: (-len(cache.cpus & node.cpus), cache.cpus.first))
            cores = cores_in(machine, by_size[position % len(by_size)].cpus & node.cpus)
        found.append(((gpu,), union(cores)))
    return found


def split_by_gpus(ranks, numbers):
    """The tasks of each node: its share by its GPUs, rounded down; the largest remainders get one more."""
    shares = [divmod(ranks * number, sum(numbers)) for number in numbers]
    left = ranks - sum(share for share, _ in shares)
    larger = sorted(range(len(numbers)), key=lambda node: -shares[node][1])[:left]
    return [share + (node in larger) for node, (share, _) in enumerate(shares)]


def mpibind(machine, gpus, ranks, division):
    nodes, rows = machine.at(Level.NODE), []
    if ranks < len(nodes):
        for own in split(nodes, ranks):
            inside = tuple(gpu for gpu in gpus if node_of(machine, gpu) in own)
            rows.append((inside, union(core for node in own for core in cores_in(machine, node.cpus))))
        return rows
    found = {node: [gpu for gpu in gpus if node_of(machine, gpu) == node] for node in nodes}
    on_nodes = {node: own for node, own in found.items() if own}
    numbers = [len(tasks) for tasks in split(range(ranks), len(on_nodes))]
    if division == "by GPUs":
        numbers = split_by_gpus(ranks, [*map(len, on_nodes.values())])
    for (node, own), tasks in zip(on_nodes.items(), numbers, strict=True):
        cores = cores_in(machine, node.cpus)
        for task in range(tasks):
            few = len(own) < tasks
            devices = (own[task * len(own) // tasks],) if few else tuple(split(own, tasks)[task])
            share = split(cores, tasks)[task] if len(cores) >= tasks else [cores[task % len(cores)]]
            rows.append((devices, union(share)))
    return rows


def ours(machine, ranks, **options):
    request = Request(ranks=ranks, devices=(DeviceKind.GPU,), smt="all", **options)
    return [(placement.devices, placement.cpuset) for placement in make_plan(machine, request).placements]


def distance(machine, row):
    """The NUMA distance of a rank from its devices, and whether it has CPUs that are not near them all."""
    devices, cpus = row
    numa = max((measure_distance(machine, cpus, device) or 0 for device in devices), default=0)
    return numa, not all(cpus <= find_near(machine, device) for device in devices)


def shares(machine, rows):
    """The cores of each rank; a core that several ranks use counts as an equal part for each."""
    core_of = machine.table.core_of
    cores = [{core_of[cpu] for cpu in cpus} for _, cpus in rows]
    return [sum(1 / sum(core in other for other in cores) for core in own) for own in cores]


def assert_no_worse(machine, made, other):
    distances = [(distance(machine, a), distance(machine, b)) for a, b in zip(made, other, strict=True)]
    assert all(a <= b for a, b in distances), distances
    if all(a == b for a, b in distances):
        assert_as_equal(machine, made, other)


def assert_as_equal(machine, made, other):
    """Check that no rank has fewer cores than there, or that shares are as equal, up to one core.

    The other tool may let ranks share cores; ompbind gives them whole cores.
    """
    own, theirs = shares(machine, made), shares(machine, other)
    if any(mine < their for mine, their in zip(own, theirs, strict=True)):
        limit = max(1 + 1 / min(own), max(theirs) / max(1, int(min(theirs))))
        assert max(own) / min(own) <= limit, (own, theirs)


@pytest.mark.parametrize("name", SAMPLED or [ABSENT])
def test_prrte_and_torch_numa(name):
    machine, gpus = read_gpus(name)
    if not gpus:
        return
    made = ours(machine, len(gpus))
    for bind in ("numa", "core"):
        assert_no_worse(machine, made, prrte(machine, gpus, bind))
    for mode in ("node", "socket", "exclusive", "core-complex"):
        assert_no_worse(machine, made, torch_numa(machine, gpus, mode))
    for each in (2, 4):
        if ranks := len(gpus) // each:
            groups = [tuple(gpus[each * rank : each * rank + each]) for rank in range(ranks)]
            several = ours(machine, ranks, devices_per_rank=each)
            assert_no_worse(machine, several, prrte_several(machine, groups))


def count_users(rows):
    """The largest number of ranks that share a device."""
    return max(Counter(device.name for devices, _ in rows for device in devices).values())


@pytest.mark.parametrize("name", SAMPLED or [ABSENT])
@pytest.mark.parametrize("division", ["even", "by GPUs"])
def test_mpibind(name, division):
    """Where mpibind gives ranks whole cores and equal numbers of devices, or one more, as ompbind does.

    On some machines it gives equal numbers of cores instead, and lets more ranks share a device.
    """
    machine, gpus = read_gpus(name)
    core_of = machine.table.core_of
    compared = 0
    for ranks in range(1, 17) if gpus else ():
        other = mpibind(machine, gpus, ranks, division)
        sizes = [len(devices) for devices, _ in other]
        used = [core for _, cpus in other for core in {*map(core_of.get, cpus)}]
        if max(sizes) - min(sizes) > 1 or not min(sizes) or len(used) > len(set(used)):
            continue
        made = ours(machine, ranks, share_devices=True)
        if count_users(other) > count_users(made) or (ranks > len(gpus) and ranks % len(gpus)):
            continue  # of unequal numbers of ranks per device, ompbind spreads the larger ones evenly
        compared += 1
        near, other_near = (max(distance(machine, row) for row in rows) for rows in (made, other))
        assert near <= other_near, ranks
        if near == other_near:
            assert_as_equal(machine, made, other)
    assert compared or not gpus
