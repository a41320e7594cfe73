"""The strategies, compared with every other way to place ranks on small machines."""

from itertools import combinations, pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError
from ompbind.machine.model import CoreKind, Level, make_domains
from ompbind.masks.mask import parse_mask
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.planning.strategies.core_sequence import PRIORITY, find_levels, make_core_sequence, split_range
from ompbind.planning.strategies.sized import RequestedCores, compact, spread
from ompbind.planning.strategies.strategies import STRATEGIES, balanced
from tests.machines import Shape, make_machine
from tests.planning.test_faults_of_others import BOOKS, renumbered, with_level
from tests.toys import run_with

LEVELS = (Level.PACKAGE, Level.NODE, Level.L3, Level.L2)
"""The levels of the machines for these tests, each inside the level before it."""


def make_nested(cores, boundaries, kinds=()):
    """Return a sequence of single-CPU cores; `boundaries` are the first cores of domains, for each level.

    A boundary of a level is also one of all levels after it.
    """
    online, starts, parts = CpuSet(range(cores)), {0}, {}
    for level, more in zip(LEVELS, boundaries, strict=True):
        starts |= {start for start in more if 0 < start < cores}
        ranges = pairwise([*sorted(starts), cores])
        parts[level] = [(number, CpuSet(range(*cores_of))) for number, cores_of in enumerate(ranges)]
    machine = make_machine(Shape(cores=cores)).replace(
        domains=make_domains(online, parts), nodes=(), kinds=kinds
    )
    return make_core_sequence(machine, tuple(CpuSet([core]) for core in range(cores)))


def make_regular(sizes):
    """Return a sequence for (packages, nodes per package, L3s per node, L2s per L3, cores per L2)."""
    *counts, _ = sizes
    boundaries, total = [], prod(sizes)
    step = total
    for count in counts:
        step //= count
        boundaries.append(set(range(0, total, step)))
    return make_nested(total, boundaries)


boundaries = st.sets(st.integers(1, 8), max_size=4)
sequences = st.builds(
    make_nested, st.integers(1, 9), st.tuples(boundaries, boundaries, boundaries, boundaries)
)
regular_sequences = st.builds(
    make_regular,
    st.sampled_from([(1, 2, 1, 1, 4), (2, 1, 1, 1, 4), (2, 2, 1, 1, 2), (1, 2, 2, 1, 2), (1, 1, 2, 2, 2)]),
)


def all_ways(cores, sizes):
    """Yield every way to divide all of these cores among ranks of these sizes, in any order."""
    if not cores:
        yield []
        return
    first, rest = cores[0], cores[1:]
    for size in set(sizes):
        left = list(sizes)
        left.remove(size)
        for others in combinations(rest, size - 1):
            remaining = [core for core in rest if core not in others]
            yield from ([(first, *others), *more] for more in all_ways(remaining, left))


def all_packings(cores, size, ranks):
    """Yield every way to give each rank `size` of the cores; some cores may stay idle."""
    if not ranks:
        yield []
        return
    for indices in combinations(cores, size):
        rest = [core for core in cores if core > indices[0] and core not in indices]
        yield from ([indices, *more] for more in all_packings(rest, size, ranks - 1))


def domain_of(ranges, core):
    return next(number for number, (start, stop) in enumerate(ranges) if start <= core < stop)


def count_domains(sequence, allocations):
    """Return how many domains each rank uses, for each level, most important first."""
    levels = [domains for level in PRIORITY if (domains := sequence.domains(level))]
    return [
        [sum(not set(cores).isdisjoint(domain) for domain in domains) for cores in allocations]
        for domains in levels
    ]


def crossings(sequence, allocations):
    """Return how many ranks have cores of several domains, for each level, most important first."""
    return tuple(sum(used > 1 for used in ranks) for ranks in count_domains(sequence, allocations))


def crossings_and_reach(sequence, allocations):
    """Return the crossings of each level, then the reach of each level."""
    reach = (sum(ranks) for ranks in count_domains(sequence, allocations))
    return *crossings(sequence, allocations), *reach


def least_distance(sequence, allocations):
    """Return the smallest distance of two ranks: higher if a larger level separates them, else 0."""
    levels = [split_range(level, (0, len(sequence.core_cpus))) for level in find_levels(sequence)]

    def distance(first, second):
        are_separate = (domain_of(ranges, first) != domain_of(ranges, second) for ranges in levels)
        return next((len(levels) - i for i, separate in enumerate(are_separate) if separate), 0)

    pairs = ((core, other) for a, b in combinations(allocations, 2) for core in a for other in b)
    return min((distance(*pair) for pair in pairs), default=0)


@given(sequences, st.data())
def test_balanced_is_the_best_of_all_equal_shares(sequence, data):
    """The fewest ranks cross boundaries, and then ranks use the fewest domains."""
    cores = len(sequence.core_cpus)
    ranks = data.draw(st.integers(1, cores))
    allocations = balanced(sequence, ranks)
    assert sorted(core for indices in allocations for core in indices) == list(range(cores))
    small, larger = divmod(cores, ranks)
    sizes = [small + (rank < larger) for rank in range(ranks)]
    assert sorted(map(len, allocations)) == sorted(sizes)
    assert allocations == sorted(allocations)
    best = min(crossings_and_reach(sequence, ways) for ways in all_ways(list(range(cores)), sizes))
    assert crossings_and_reach(sequence, allocations) == best


def draw_sized(sequence, data):
    size = data.draw(st.integers(1, len(sequence.core_cpus)))
    return data.draw(st.integers(1, len(sequence.core_cpus) // size)), size


def request_cores(ask):
    """Return (ranks, cores of each rank) as arguments of a strategy."""
    ranks, size = ask
    return ranks, RequestedCores(compute=size)


@given(regular_sequences, st.data())
def test_compact_and_spread_cross_the_fewest_boundaries(sequence, data):
    ask = draw_sized(sequence, data)
    ranks, size = ask
    ways = list(all_packings(range(len(sequence.core_cpus)), size, ranks))
    best = min(crossings(sequence, way) for way in ways)
    packed, scattered = (place(sequence, *request_cores(ask)) for place in (compact, spread))
    assert crossings(sequence, packed) == crossings(sequence, scattered) == best
    uncrossed = [way for way in ways if crossings(sequence, way) == best]
    assert least_distance(sequence, scattered) == max(least_distance(sequence, way) for way in uncrossed)
    assert packed[-1][-1] == min(max(core for indices in way for core in indices) for way in uncrossed)


def draw_requested(sequence, data):
    """Draw a number of ranks and the cores of each that fit on a sequence."""
    ranks, size = draw_sized(sequence, data)
    compute = data.draw(st.integers(1, size))
    service = data.draw(st.integers(0, size - compute))
    return ranks, RequestedCores(compute=compute, service=service, reserved=size - compute - service)


def check_sizes(allocations, ranks, requested):
    assert [len(cores) for cores in allocations] == [requested.total] * ranks
    assert len({core for cores in allocations for core in cores}) == requested.total * ranks


@given(sequences | regular_sequences, st.sampled_from(["balanced", "compact", "spread"]), st.data())
def test_ranks_that_request_cores_cross_the_fewest_boundaries(sequence, name, data):
    """No compute cores of a rank cross a boundary that equal ranks of this size need not cross."""
    ranks, requested = draw_requested(sequence, data)
    allocations = STRATEGIES[name].divide(sequence, ranks, requested)
    check_sizes(allocations, ranks, requested)
    assert allocations == sorted(allocations)
    compute = [cores[: requested.compute] for cores in allocations]
    ways = all_packings(range(len(sequence.core_cpus)), requested.compute, ranks)
    assert crossings(sequence, compute) == min(crossings(sequence, way) for way in ways)


@given(sequences | regular_sequences, st.sampled_from(["packages", "nodes", "l3", "l2"]), st.data())
def test_ranks_that_request_cores_of_a_domain_get_all_of_them_there(sequence, name, data):
    ranks, requested = draw_requested(sequence, data)
    domains = sequence.domains(STRATEGIES[name].level)
    if ranks > sum(len(domain) // requested.total for domain in domains):
        with pytest.raises(PlanError, match="do not fit, each in one"):
            STRATEGIES[name].divide(sequence, ranks, requested)
        return
    allocations = STRATEGIES[name].divide(sequence, ranks, requested)
    check_sizes(allocations, ranks, requested)
    assert all(any(set(cores) <= set(domain) for domain in domains) for cores in allocations)
    used = [sum(set(cores) <= set(domain) for cores in allocations) for domain in domains]
    roomy = [index for index, domain in enumerate(domains) if len(domain) >= requested.total]
    assert all(used[index] for index in roomy) or max(used) == 1, "each has a rank before any has two"


@pytest.mark.parametrize(("sizes", "ranks", "cores", "allocations"), [
    # one service core: in the node of its rank
    ((1, 2, 1, 1, 6), 2, (4, 1), [(0, 1, 2, 3, 4), (6, 7, 8, 9, 10)]),
    # no node has room for a whole rank: compute cores stay in one node, and service cores are elsewhere
    ((1, 4, 1, 1, 4), 3, (4, 1), [(0, 1, 2, 3, 12), (4, 5, 6, 7, 13), (8, 9, 10, 11, 14)]),
    # in the nearest L3 that has free cores
    ((1, 2, 2, 1, 3), 2, (3, 2), [(0, 1, 2, 3, 4), (6, 7, 8, 9, 10)]),
    # a rank larger than a domain uses whole domains
    ((1, 8, 1, 1, 3), 2, (5, 0), [(0, 1, 2, 3, 4), (12, 13, 14, 15, 16)]),
    # as without a request, if all cores are requested
    ((2, 2, 1, 1, 3), 4, (3, 0), [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)]),
])  # fmt: skip
def test_service_cores_are_near_their_rank(sizes, ranks, cores, allocations):
    requested = RequestedCores(compute=cores[0], service=cores[1])
    assert balanced(make_regular(sizes), ranks, requested) == allocations


def make_kinds(performance, cores):
    """Core kinds: the first `performance` cores, and the rest."""
    ranges = (("performance", range(performance), 1024), ("efficiency", range(performance, cores), 600))
    return tuple(
        CoreKind(name=name, cpus=CpuSet(cpus), strength=strength, source="type")
        for name, cpus, strength in ranges
    )


@pytest.mark.parametrize(("strategy", "cores", "boundaries", "performance", "ask", "expected"), [
    # although only the efficiency cores share caches
    (compact, 8, ({}, {}, {}, {1, 2, 3, 4}), 4, (1, 2), [(0, 1)]),
    (spread, 8, ({2}, {4, 6}, {}, {}), 8, (4, 1), [(0,), (2,), (4,), (6,)]),
    # a kind of cores that partially overlaps domains is ignored
    (balanced, 4, ({}, {2}, {}, {}), 3, (2, 2), [(0, 1), (2, 3)]),
    (balanced, 7, ({}, {}, {1, 3, 5}, {}), 7, (2, None), [(0, 5, 6), (1, 2, 3, 4)]),
    (STRATEGIES["nodes"].divide, 9, ({}, {6}, {}, {}), 9, (4, None), [(0, 1), (2, 3), (4, 5), (6, 7, 8)]),
])  # fmt: skip
def test_irregular_machines(strategy, cores, boundaries, performance, ask, expected):
    kinds = make_kinds(performance, cores) if performance < cores else ()
    ranks, size = ask
    requested = RequestedCores(compute=size) if size else None
    assert strategy(make_nested(cores, boundaries, kinds), ranks, requested) == expected


@given(sequences, st.data())
def test_domains_are_allocated_whole_or_split_evenly(sequence, data):
    name = data.draw(st.sampled_from(["packages", "nodes", "l3", "l2"]))
    ranges = [(indices[0], indices[-1] + 1) for indices in sequence.domains(STRATEGIES[name].level)]
    ranks = data.draw(st.integers(1, len(sequence.core_cpus)))
    allocations = STRATEGIES[name].divide(sequence, ranks, None)
    domains = [{domain_of(ranges, core) for core in indices} for indices in allocations]
    assert all(len(used) == 1 for used in domains)
    for number, (start, stop) in enumerate(ranges):
        shares = [len(cores) for cores, used in zip(allocations, domains, strict=True) if used == {number}]
        assert sum(shares) in (0, stop - start)
        assert not shares or max(shares) - min(shares) <= 1
        assert bool(shares) == (number < ranks), "every domain has a rank before any has two"


INTERLEAVED = {Level.PACKAGE: [[0, 1, 4, 5], [2, 3, 6, 7]], Level.L3: [[0, 1, 2, 3], [4, 5, 6, 7]]}


def plan_odd(parts, **request):
    """A plan on a machine with these domains and a core for each CPU."""
    cores = 1 + max(max(cpus) for sets in parts.values() for cpus in sets)
    named = {level: [(i, CpuSet(cpus)) for i, cpus in enumerate(sets)] for level, sets in parts.items()}
    named[Level.CORE] = [(None, CpuSet([core])) for core in range(cores)]
    machine = make_machine(Shape(cores=cores))
    machine = machine.replace(domains=make_domains(machine.online, named), nodes=())
    return make_plan(machine, Request(**request))


@pytest.mark.parametrize(("parts", "options", "expected"), [
    # cores that are in no domain
    ({Level.NODE: [[0, 1]], Level.PACKAGE: [[0, 1, 2, 3]]}, {"ranks": 2, "strategy": "nodes"}, "0 1"),
    # two L3s with interleaved cores, as odd firmware reports them
    (INTERLEAVED, {"strategy": "l3"}, "0-3 4-7"), (INTERLEAVED, {"strategy": "packages"}, "0-1,4-5 2-3,6-7"),
    # nodes that contain packages
    ({Level.PACKAGE: [[0, 2], [1], [3]], Level.NODE: [[0, 2], [1, 3]]}, {"strategy": "nodes"}, "0,2 1,3"),
])  # fmt: skip
def test_domains_of_odd_firmware(parts, options, expected):
    made = plan_odd(parts, **{"ranks": None, **options})
    assert [str(placement.cpuset) for placement in made.placements] == expected.split()


def test_domain_strategies_refuse_ranks_for_cores_that_are_in_no_domain():
    with pytest.raises(PlanError, match="3 ranks do not fit on 2 CPUs"):
        plan_odd({Level.NODE: [[0, 1]], Level.PACKAGE: [[0, 1, 2, 3]]}, ranks=3, strategy="nodes")


SNC = make_machine(Shape(packages=2, nodes=2, cores=4))  # four nodes of four CPUs, two in each package
PACKAGES = with_level(make_machine(Shape(cores=8)), Level.PACKAGE, ["0-3", "4-7"])  # in one node
FLAT = PACKAGES.replace(nodes=(), domains=tuple(d for d in PACKAGES.domains if d.level is not Level.NODE))
CLUSTERS = PACKAGES.replace(kinds=make_kinds(4, 8))  # as Linux on Arm without ACPI shows a big.LITTLE chip


@pytest.mark.parametrize(("machine", "options", "expected"), [
    (SNC, {"ranks": 3}, "0-3 4-7 8-11"), (SNC, {}, "0-3 4-7 8-11 12-15"),
    (SNC, {"ranks": 8}, "0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15"),
    (renumbered(SNC, {0: 8, 1: 2, 2: 1, 3: 0}), {"ranks": 2}, "12-15 8-11"),
    (SNC.replace(memory_allowed=CpuSet([2])), {"ranks": 2}, "0-3 8-11"),
    (SNC.replace(allowed=CpuSet([5, 6, 13])), {"ranks": 2}, "5-6 13"),
    (SNC, {"ranks": 2, "nodes": parse_mask("node:#3,node:#0")}, "12-15 0-3"),
    (PACKAGES, {}, "0-3 4-7"), (PACKAGES, {"ranks": 3}, "0-1 2-3 4-7"),
    (PACKAGES, {"ranks": 2, "cores": 3}, "0-2 4-6"), (FLAT, {"ranks": 2}, "0-3 4-7"),
    (CLUSTERS, {"ranks": 1}, "0-7"), (BOOKS, {"ranks": 1}, "0-7"),
    (BOOKS, {}, "0-7 8-15"),
])  # fmt: skip
def test_the_strategy_numa_gives_nodes_by_os_number_or_their_packages(machine, options, expected):
    made = make_plan(machine, Request(**{"ranks": None, "strategy": "numa", **options}))
    assert [str(placement.cpuset) for placement in made.placements] == expected.split()


TOY = """
from ompbind.planning.strategies.strategies import STRATEGIES, Strategy
STRATEGIES["backwards"] = Strategy(
    divide=lambda sequence, ranks, _: [(len(sequence.core_cpus) - 1 - rank,) for rank in range(ranks)],
    summary="one core, counted from the end",
    auto_ranks=lambda sequence, _: len(sequence.core_cpus) // 2,
    label="one per second core",
)
"""


def test_a_strategy_is_one_function_and_one_row():
    assert "cores, all, backwards" in run_with(TOY, "plan", "--help")
    machine = "synthetic:pack:1 core:4 pu:1"
    output = run_with(TOY, "plan", "-n", "auto", "-s", "backwards", "--topology", machine)
    assert "2 ranks, backwards" in output
    assert " 0 1 1 0 3 1 place: whole rank 1 1 1 0 2 1 place: whole rank " in output
