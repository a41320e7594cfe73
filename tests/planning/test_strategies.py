"""The strategies, compared with every other way to give ranks consecutive cores of small machines."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.errors import MaskError, PlanError
from ompbind.machine.model import KIND, Level
from ompbind.masks.mask import parse_mask
from ompbind.planning.placing import PRIORITY, Cores
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.planning.sized import RequestedCores
from ompbind.planning.strategies import STRATEGIES, balanced
from tests.machines import Shape, make_kinds, make_machine, with_domains
from tests.planning.test_planner import lists, plan_on

compact, spread = STRATEGIES["compact"].divide, STRATEGIES["spread"].divide

LEVELS = (Level.PACKAGE, Level.NODE, Level.L3, Level.L2)
"""The levels of the machines for these tests, each inside the level before it."""


def make_nested(cores, boundaries, fast=0):
    """Single-CPU cores, the first ones fast; `boundaries` are first cores of domains, for each level.

    A boundary of a level is also one of all levels after it.
    """
    starts, parts = {0}, {}
    for level, more in zip(LEVELS, boundaries, strict=True):
        starts |= {start for start in more if 0 < start < cores}
        parts[level] = [f"{start}-{stop - 1}" for start, stop in pairwise([*sorted(starts), cores])]
    return cores_of(with_domains(make_machine(Shape(cores=cores)), parts, kinds=kinds_of(fast, cores)))


def cores_of(machine):
    return Cores(table=machine.table, rows=tuple(range(len(machine.table.cores))), distances={})


def kinds_of(fast, cores):
    return make_kinds(CpuSet(range(fast)), CpuSet(range(fast, cores))) if fast else ()


def regular(**sizes):
    return cores_of(make_machine(Shape(**sizes)))


boundaries = st.sets(st.integers(1, 11), max_size=4)
few = st.integers(1, 2)
some_cores = st.builds(make_nested, st.integers(1, 12), st.tuples(*[boundaries] * 4)) | st.builds(
    regular, packages=few, nodes=few, l3s=few, cores=st.integers(2, 3)
).filter(lambda cores: len(cores.rows) <= 16)


def all_shares(cores, ranks):
    """Yield every way to divide all cores into equal shares of consecutive cores."""
    small, larger = divmod(len(cores.rows), ranks)
    for chosen in combinations(range(ranks), larger):
        starts = [rank * small + sum(other < rank for other in chosen) for rank in range(ranks + 1)]
        yield [tuple(range(*bounds)) for bounds in pairwise(starts)]


def all_places(cores, size, ranks):
    """Yield every way to give each rank `size` consecutive cores; other cores stay idle."""
    idle = len(cores.rows) - size * ranks
    for chosen in combinations(range(ranks + idle), ranks):  # each rank is one item among idle cores
        firsts = [place + rank * (size - 1) for rank, place in enumerate(chosen)]
        yield [tuple(range(first, first + size)) for first in firsts]


def measure(cores, allocations):
    """Return how many ranks cross each level, most important first, then how many domains they use."""
    columns = [cores.numbers(level) for level in (*PRIORITY, KIND)]
    used = [[len({numbers[core] for core in share}) for share in allocations] for numbers in columns]
    return [sum(number > 1 for number in ranks) for ranks in used], [sum(ranks) for ranks in used]


def widest(cores, allocations):
    """Return for each level how many domains the rank with the most of them uses."""
    columns = [cores.numbers(level) for level in (*PRIORITY, KIND)]
    return [max(len({numbers[core] for core in share}) for share in allocations) for numbers in columns]


def least_distance(cores, allocations):
    """Return the smallest distance of two ranks: higher if a wider level separates them, else 0."""
    columns = [cores.numbers(level) for level in LEVELS]
    pairs = [(one[-1], other[0]) for one, other in pairwise(allocations)]
    wide_first = [[numbers[core] != numbers[other] for numbers in columns] for core, other in pairs]
    return min(wide_first, default=[])


@given(some_cores, st.data())
def test_balanced_is_the_best_of_all_equal_shares(cores, data):
    """The fewest ranks cross boundaries, and then ranks use the fewest domains; no rank uses more."""
    ranks = data.draw(st.integers(1, len(cores.rows)))
    check_equal_shares(cores, ranks, balanced(cores, ranks))


def check_equal_shares(cores, ranks, allocations):
    ways = list(all_shares(cores, ranks))
    best = min(measure(cores, way) for way in ways)
    assert allocations in ways or measure(cores, allocations) < best
    assert measure(cores, allocations) <= best
    assert sorted(map(len, allocations)) == sorted(map(len, ways[0]))
    assert sorted(core for share in allocations for core in share) == list(cores.rows)
    ours, equal = widest(cores, allocations), [way for way in ways if measure(cores, way) == best]
    assert any(all(a <= b for a, b in zip(ours, widest(cores, way), strict=True)) for way in equal)


def draw_sized(cores, data):
    size = data.draw(st.integers(1, len(cores.rows)))
    return data.draw(st.integers(1, len(cores.rows) // size)), size


@given(some_cores, st.data())
def test_compact_and_spread_are_the_best_of_all_places(cores, data):
    """Of equally good places `compact` uses the first, and `spread` places that are far apart."""
    ranks, size = draw_sized(cores, data)
    ways = list(all_places(cores, size, ranks))
    best = min(measure(cores, way) for way in ways)
    packed, scattered = (place(cores, ranks, RequestedCores(compute=size)) for place in (compact, spread))
    if ranks * size == len(cores.rows):
        check_equal_shares(cores, ranks, packed)
        assert scattered == packed
        return
    assert measure(cores, packed) == measure(cores, scattered) == best
    equal = [way for way in ways if measure(cores, way) == best]
    assert packed[-1][-1] == min(way[-1][-1] for way in equal)
    assert sum(map(sum, packed)) == min(sum(map(sum, way)) for way in equal)
    assert least_distance(cores, scattered) == max(least_distance(cores, way) for way in equal)


def draw_requested(cores, data):
    ranks, size = draw_sized(cores, data)
    compute = data.draw(st.integers(1, size))
    service = data.draw(st.integers(0, size - compute))
    return ranks, RequestedCores(compute=compute, service=service, reserved=size - compute - service)


def check_sizes(allocations, ranks, requested):
    assert [len(share) for share in allocations] == [requested.total] * ranks
    assert len({core for share in allocations for core in share}) == requested.total * ranks


@given(some_cores, st.sampled_from(["balanced", "compact", "spread"]), st.data())
def test_ranks_that_request_cores_cross_the_fewest_boundaries(cores, name, data):
    """No compute cores of a rank cross a boundary that equal ranks of this size need not cross."""
    ranks, requested = draw_requested(cores, data)
    allocations = STRATEGIES[name].divide(cores, ranks, requested)
    check_sizes(allocations, ranks, requested)
    assert allocations == sorted(allocations)
    compute = [share[: requested.compute] for share in allocations]
    crossing, _ = measure(cores, compute)
    assert crossing <= min(measure(cores, way)[0] for way in all_places(cores, requested.compute, ranks))


@given(some_cores, st.sampled_from(["packages", "nodes", "l3"]), st.booleans(), st.data())
def test_ranks_get_whole_domains_or_equal_parts_of_one(cores, name, requests_cores, data):
    """Every domain with room has a rank before any has two; parts differ by at most one core."""
    domains = cores.domains(STRATEGIES[name].level)
    ranks, requested = data.draw(st.integers(1, len(cores.rows))), None
    if requests_cores:
        ranks, requested = draw_requested(cores, data)
    room = [len(domain) // (requested.total if requested else 1) for domain in domains]
    if ranks > sum(room):
        with pytest.raises(PlanError, match="do not fit, each in one"):
            STRATEGIES[name].divide(cores, ranks, requested)
        return
    allocations = STRATEGIES[name].divide(cores, ranks, requested)
    inside = [[share for share in allocations if set(share) <= set(domain)] for domain in domains]
    assert sum(map(len, inside)) == ranks
    has_rank = [bool(shares) for shares, most in zip(inside, room, strict=True) if most]
    assert all(has_rank) or max(map(len, inside)) == 1
    if requested:
        check_sizes(allocations, ranks, requested)
        return
    for domain, shares in zip(domains, inside, strict=True):
        assert sum(map(len, shares)) in (0, len(domain))
        assert not shares or max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(("name", "cores", "ranks", "requested", "expected"), [
    # one service core: in the node of its rank
    ("balanced", regular(nodes=2, cores=6), 2, (4, 1), "0-4 6-10"),
    # no node has room for a whole rank: compute cores stay in one node, and service cores are elsewhere
    ("balanced", regular(nodes=4, cores=4), 3, (4, 1), "0-3,12 4-7,13 8-11,14"),
    # in the nearest L3 that has free cores
    ("balanced", regular(nodes=2, l3s=2, cores=3), 2, (3, 2), "0-4 6-10"),
    # a rank larger than a domain uses whole domains
    ("balanced", regular(nodes=8, cores=3), 2, (5, 0), "0-4 12-16"),
    # domains first, where no rank then uses more of them
    ("balanced", make_nested(14, ({}, {}, {3, 7, 10}, {})), 7, None, "0-1 2,9 3-4 5-6 7-8 10-11 12-13"),
    # where equal shares do not fit, no rank collects what others leave
    ("balanced", make_nested(7, ({}, {}, {1, 3, 5}, {})), 2, None, "0-2 3-6"),
    # fewer ranks cross boundaries, although one of them is in three nodes
    ("balanced", make_nested(10, ({3, 8}, {3, 4, 5, 9}, {}, {})), 3, None, "0-2 3-6 7-9"),
    # a boundary counts beside a cache that could hold the whole rank
    ("compact", make_nested(7, ({}, {}, {}, {1, 3}), 1), 1, (4, 0), "3-6"),
    # although only the efficiency cores share caches
    ("compact", make_nested(8, ({}, {}, {}, {1, 2, 3, 4}), 4), 1, (2, 0), "0-1"),
    # domains count more than kinds of cores
    ("balanced", make_nested(4, ({}, {2}, {}, {}), 3), 2, (2, 0), "0-1 2-3"),
    ("spread", make_nested(8, ({2}, {4, 6}, {}, {})), 4, (1, 0), "0 2 4 6"),
    ("nodes", make_nested(9, ({}, {6}, {}, {})), 4, None, "0-1 2-3 4-5 6-8"),
])  # fmt: skip
def test_ranks_get(name, cores, ranks, requested, expected):
    size = RequestedCores(compute=requested[0], service=requested[1]) if requested else None
    shares = STRATEGIES[name].divide(cores, ranks, size)
    assert [str(CpuSet(share)) for share in shares] == expected.split()


SNC = make_machine(Shape(packages=2, nodes=2, cores=4))  # four nodes of four CPUs, two in each package
FAR = SNC.nodes[0].replace(number=9, cpus=CpuSet(), nearest=(0,))
PACKAGES = with_domains(make_machine(Shape(cores=8)), {Level.PACKAGE: ["0-3", "4-7"]})  # in one node
FLAT = PACKAGES.replace(nodes=(), domains=tuple(d for d in PACKAGES.domains if d.level is not Level.NODE))
FOURS = {Level.BOOK: ["0-3", "4-7", "8-11", "12-15"], Level.DRAWER: ["0-7", "8-15"]}
BOOKS = with_domains(make_machine(Shape(cores=16)), FOURS, arch="s390x")
CLUSTERS = PACKAGES.replace(kinds=kinds_of(4, 8))  # as Linux on Arm without ACPI shows a big.LITTLE chip


def renumbered(machine, numbers):
    return machine.replace(
        nodes=tuple(node.replace(number=numbers[node.number]) for node in machine.nodes),
        domains=tuple(
            domain.replace(os_id=numbers[domain.os_id]) if domain.level is Level.NODE else domain
            for domain in machine.domains
        ),
    )


def odd(cores, **parts):
    sets = {Level(name): text.split() for name, text in parts.items()}
    return with_domains(make_machine(Shape(cores=cores)), sets)


PART = odd(4, node="0-1", package="0-3")  # two of the cores are in no node
INTERLEAVED = odd(8, package="0-1,4-5 2-3,6-7", l3="0-3 4-7")


@pytest.mark.parametrize(("machine", "options", "expected"), [
    (PART, {"ranks": 2, "strategy": "nodes"}, "0 1"),
    (INTERLEAVED, {"strategy": "l3"}, "0-3 4-7"), (INTERLEAVED, {"strategy": "packages"}, "0-1,4-5 2-3,6-7"),
    # nodes that contain packages
    (odd(4, package="0,2 1 3", node="0,2 1,3"), {"strategy": "nodes"}, "0,2 1,3"),
    # the strategy numa gives nodes by OS number, or their packages
    (SNC, {"ranks": 3}, "0-3 4-7 8-11"), (SNC, {}, "0-3 4-7 8-11 12-15"),
    (SNC, {"ranks": 8}, "0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15"),
    (renumbered(SNC, {0: 8, 1: 2, 2: 1, 3: 0}), {"ranks": 2}, "12-15 8-11"),
    (SNC.replace(memory_allowed=CpuSet([2])), {"ranks": 2}, "0-3 8-11"),
    (SNC.replace(allowed=CpuSet([5, 6, 13])), {"ranks": 2}, "5-6 13"),
    (SNC, {"ranks": 2, "nodes": parse_mask("node:#3,node:#0")}, "12-15 0-3"),
    (PACKAGES, {}, "0-3 4-7"), (PACKAGES, {"ranks": 3}, "0-1 2-3 4-7"),
    (PACKAGES, {"ranks": 2, "cores": 3}, "0-2 4-6"), (FLAT, {"ranks": 2}, "0-3 4-7"),
    # allowed memory alone, or memory without CPUs (CXL, HBM), gives a node no rank
    (SNC.replace(allowed=CpuSet(range(4, 8)), memory_allowed=CpuSet((0, 1))), {"strategy": "nodes"}, "4-7"),
    (SNC.replace(nodes=(*SNC.nodes, FAR)), {"strategy": "nodes"}, "0-3 4-7 8-11 12-15"),
    (CLUSTERS, {"ranks": 1}, "0-7"), (BOOKS, {"ranks": 1}, "0-7"), (BOOKS, {}, "0-7 8-15"),
])  # fmt: skip
def test_ranks_get_domains(machine, options, expected):
    made = make_plan(machine, Request(**{"ranks": "auto", "strategy": "numa", **options}))
    assert [str(placement.cpuset) for placement in made.placements] == expected.split()


def test_cores_in_no_node_count_for_no_rank():
    with pytest.raises(PlanError, match="3 ranks do not fit on 2 CPUs"):
        make_plan(PART, Request(ranks=3, strategy="nodes"))


@pytest.mark.parametrize("numbers", [(3, 2, 1, 0), (0, 8, 252, 255)])
@pytest.mark.parametrize("strategy", ["balanced", "compact", "spread", "packages", "nodes"])
def test_numbers_of_nodes_are_never_compared_with_numbers_of_cpus(numbers, strategy):
    """vLLM looked for node numbers among CPU numbers; others assume numbers from 0 without gaps."""
    other = renumbered(SNC, dict(enumerate(numbers)))
    for ranks in (1, 2, 3, 5):
        before, after = (plan_on(machine, ranks=ranks, strategy=strategy) for machine in (SNC, other))
        assert lists(before) == lists(after)
        for placement, same in zip(before.placements, after.placements, strict=True):
            assert sorted(same.nodes) == sorted(numbers[node] for node in placement.nodes)
            assert same.memory_nodes == tuple(sorted(same.nodes))
    assert (
        lists(plan_on(other, mask=f"node:#{numbers[2]}")) == lists(plan_on(other, mask="node:2")) == ["8-11"]
    )
    with pytest.raises(MaskError, match="no node with OS number 7"):
        plan_on(other, mask="node:#7")
