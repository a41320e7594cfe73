"""The strategies, compared with every other way to place ranks on small machines."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError
from ompbind.machine.model import CoreKind, Level, make_domains
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.planning.strategies.core_sequence import PRIORITY, find_levels, make_core_sequence, split_range
from ompbind.planning.strategies.packing import divide_equally, pack_ranks
from ompbind.planning.strategies.shapes import RankSizes
from ompbind.planning.strategies.sized import RequestedCores, compact, spread
from ompbind.planning.strategies.strategies import STRATEGIES, balanced
from tests.machines import Shape, make_machine
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
    *counts, cores_per_l2 = sizes
    boundaries = []
    total = cores_per_l2
    for count in counts:
        total *= count
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
    st.sampled_from(
        [(1, 2, 1, 1, 4), (2, 1, 1, 1, 4), (2, 2, 1, 1, 2), (1, 2, 2, 1, 2), (1, 1, 2, 2, 2), (1, 3, 1, 1, 3)]
    ),
)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["one domain", "one core each"]))
def test_shares_without_boundaries_are_those_that_packing_finds(cores, ranks, domains):
    starts = range(cores) if domains == "one core each" else ()
    sequence, ranks = make_nested(cores, (set(), set(), set(), set(starts))), min(cores, ranks)
    size = -(-cores // ranks)
    packed = pack_ranks(sequence, RankSizes(large=size, small_ranks=size * ranks - cores), least_reach=True)
    assert divide_equally(sequence, ranks) == list(packed)


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
    return [
        [
            sum(not set(indices).isdisjoint(domain) for domain in sequence.domains(level))
            for indices in allocations
        ]
        for level in PRIORITY
        if sequence.domains(level)
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


def reach(sequence, name, ranks):
    """Return the reach of each level, most important first."""
    allocations = STRATEGIES[name].divide(sequence, ranks, None)
    return [sum(used) for used in count_domains(sequence, allocations)]


KNIGHTS_LANDING = make_nested(68, ({}, {18, 36, 52}, {}, set(range(0, 68, 2))))
"""Nodes of 18, 18, 16 and 16 cores, and L2s of two cores."""

POWER9 = make_nested(40, ({20}, {}, set(range(0, 40, 2)), {}))
"""Two nodes of 20 cores, and L3s of two cores."""


@pytest.mark.parametrize(
    ("sequence", "name", "ranks", "nodes", "l2s"),
    [
        (KNIGHTS_LANDING, "balanced", 4, 6, 36),
        *((KNIGHTS_LANDING, "balanced", ranks, ranks, 68 - ranks) for ranks in range(24, 33)),
        (KNIGHTS_LANDING, "balanced", 23, 24, 45),
        (POWER9, "nodes", 13, 13, 25),
        (POWER9, "balanced", 13, 14, 26),
    ],
)
def test_ranks_of_real_machines_use_the_fewest_domains(sequence, name, ranks, nodes, l2s):
    by_level = reach(sequence, name, ranks)
    assert (by_level[0], by_level[-1]) == (nodes, l2s)


@pytest.mark.parametrize("limits", [(0, 64), (1 << 16, 0)])
def test_a_search_without_time_crosses_the_fewest_boundaries(monkeypatch, limits):
    """Machines too large for the whole search: the shares stay equal, and ranks cross no more boundaries."""
    whole = {ranks: balanced(KNIGHTS_LANDING, ranks) for ranks in range(1, 69)}
    monkeypatch.setattr("ompbind.planning.strategies.shapes.SEARCH_LIMIT", limits[0])
    monkeypatch.setattr("ompbind.planning.strategies.shapes.CHILDREN_LIMIT", limits[1])
    monkeypatch.setattr("ompbind.planning.strategies.shapes.SMALL_RANKS_LIMIT", 0)
    for ranks, best in whole.items():
        rough = balanced(KNIGHTS_LANDING, ranks)
        assert sorted(core for indices in rough for core in indices) == list(range(68))
        assert sorted(map(len, rough)) == sorted(map(len, best))
        assert crossings(KNIGHTS_LANDING, rough) == crossings(KNIGHTS_LANDING, best)


def draw_sized(sequence, data):
    size = data.draw(st.integers(1, len(sequence.core_cpus)))
    return data.draw(st.integers(1, len(sequence.core_cpus) // size)), size


def request_cores(ask):
    """Return (ranks, cores of each rank) as arguments of a strategy."""
    ranks, size = ask
    return ranks, RequestedCores(compute=size)


def check_sized(sequence, ask, allocations):
    ranks, size = ask
    assert [len(indices) for indices in allocations] == [size] * ranks
    assert len({core for indices in allocations for core in indices}) == size * ranks
    assert allocations == sorted(allocations)


@given(sequences, st.data())
def test_compact_and_spread_give_every_rank_cores_of_its_own(sequence, data):
    ask = draw_sized(sequence, data)
    check_sized(sequence, ask, compact(sequence, *request_cores(ask)))
    check_sized(sequence, ask, spread(sequence, *request_cores(ask)))


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


STRATEGIES_OF_SIZES = ("balanced", "compact", "spread")


@given(sequences | regular_sequences, st.sampled_from(STRATEGIES_OF_SIZES), st.data())
def test_ranks_that_request_cores_cross_the_fewest_boundaries(sequence, name, data):
    """No compute cores of a rank cross a boundary that equal ranks of this size need not cross."""
    ranks, requested = draw_requested(sequence, data)
    allocations = STRATEGIES[name].divide(sequence, ranks, requested)
    assert [len(cores) for cores in allocations] == [requested.total] * ranks
    assert len({core for cores in allocations for core in cores}) == requested.total * ranks
    assert allocations == sorted(allocations)
    compute = [cores[: requested.compute] for cores in allocations]
    ways = all_packings(range(len(sequence.core_cpus)), requested.compute, ranks)
    assert crossings(sequence, compute) == min(crossings(sequence, way) for way in ways)


@given(sequences | regular_sequences, st.sampled_from(["packages", "nodes", "l3", "l2"]), st.data())
def test_ranks_that_request_cores_of_a_domain_get_all_of_them_there(sequence, name, data):
    ranks, requested = draw_requested(sequence, data)
    domains = sequence.domains(STRATEGIES[name].level)
    fitting = sum(len(domain) // requested.total for domain in domains)
    if ranks > fitting:
        with pytest.raises(PlanError, match="do not fit, each in one"):
            STRATEGIES[name].divide(sequence, ranks, requested)
        return
    allocations = STRATEGIES[name].divide(sequence, ranks, requested)
    assert [len(cores) for cores in allocations] == [requested.total] * ranks
    assert len({core for cores in allocations for core in cores}) == requested.total * ranks
    assert all(any(set(cores) <= set(domain) for domain in domains) for cores in allocations)
    used = [sum(set(cores) <= set(domain) for cores in allocations) for domain in domains]
    roomy = [index for index, domain in enumerate(domains) if len(domain) >= requested.total]
    assert all(used[index] for index in roomy) or max(used) == 1, "each has a rank before any has two"


@pytest.mark.parametrize(
    ("sizes", "ranks", "cores", "allocations"),
    [
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
    ],
)
def test_service_cores_are_near_their_rank(sizes, ranks, cores, allocations):
    compute, service = cores
    requested = RequestedCores(compute=compute, service=service)
    assert balanced(make_regular(sizes), ranks, requested) == allocations


@pytest.mark.parametrize(
    ("sizes", "ask", "packed", "scattered"),
    [
        ((2, 2, 1, 1, 4), (2, 3), [(0, 1, 2), (4, 5, 6)], [(0, 1, 2), (8, 9, 10)]),
        ((2, 2, 1, 1, 4), (4, 1), [(0,), (1,), (2,), (3,)], [(0,), (4,), (8,), (12,)]),
        ((2, 2, 1, 1, 4), (3, 1), [(0,), (1,), (2,)], [(0,), (4,), (8,)]),
        ((1, 1, 1, 1, 8), (3, 1), [(0,), (1,), (2,)], [(0,), (2,), (5,)]),
        ((1, 1, 2, 1, 3), (3, 2), [(0, 1), (2, 3), (4, 5)], [(0, 1), (2, 3), (4, 5)]),
    ],
)  # fmt: skip
def test_compact_packs_ranks_and_spread_separates_them(sizes, ask, packed, scattered):
    sequence = make_regular(sizes)
    assert compact(sequence, *request_cores(ask)) == packed
    assert spread(sequence, *request_cores(ask)) == scattered


def test_hybrid_processors_are_packed_from_the_start_although_only_efficiency_cores_share_caches():
    kinds = (
        CoreKind(name="performance", cpus=CpuSet(range(4)), strength=1024, source="type"),
        CoreKind(name="efficiency", cpus=CpuSet(range(4, 8)), strength=600, source="type"),
    )
    sequence = make_nested(8, ({}, {}, {}, {1, 2, 3, 4}), kinds)
    assert compact(sequence, *request_cores((1, 2))) == [(0, 1)]


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


@pytest.mark.parametrize(
    ("cores", "boundary", "ranks", "allocations"),
    [
        (9, 6, 4, [(0, 1), (2, 3), (4, 5), (6, 7, 8)]),
        (12, 4, 5, [(0, 1), (2, 3), (4, 5, 6), (7, 8, 9), (10, 11)]),
    ],
)
def test_more_ranks_than_domains_go_where_shares_are_largest(cores, boundary, ranks, allocations):
    sequence = make_nested(cores, ({}, {boundary}, {}, {}))
    assert STRATEGIES["nodes"].divide(sequence, ranks, None) == allocations


def test_ranks_larger_than_domains_end_at_domain_boundaries():
    sequence = make_nested(7, ({}, {}, {1, 3, 5}, {}))
    assert balanced(sequence, 2) == [(0, 5, 6), (1, 2, 3, 4)]


def test_spread_uses_one_node_per_rank_although_packages_have_different_numbers_of_nodes():
    sequence = make_nested(8, ({2}, {4, 6}, {}, {}))
    assert spread(sequence, *request_cores((4, 1))) == [(0,), (2,), (4,), (6,)]


def test_domain_strategies_use_only_cores_that_are_in_a_domain():
    parts = {Level.NODE: [(0, CpuSet(range(2)))], Level.CORE: [(None, CpuSet([core])) for core in range(4)]}
    machine = make_machine(Shape(cores=4))
    machine = machine.replace(domains=make_domains(machine.online, parts), nodes=())
    made = make_plan(machine, Request(ranks=2, strategy="nodes"))
    assert [placement.cpus for placement in made.placements] == [(0,), (1,)]
    with pytest.raises(PlanError, match="3 ranks do not fit on 2 CPUs"):
        make_plan(machine, Request(ranks=3, strategy="nodes"))


def test_a_domain_in_pieces_is_one_domain():
    """Two L3s with interleaved cores, as odd firmware reports them."""
    parts = {
        Level.PACKAGE: [(0, CpuSet([0, 1, 4, 5])), (1, CpuSet([2, 3, 6, 7]))],
        Level.L3: [(None, CpuSet([0, 1, 2, 3])), (None, CpuSet([4, 5, 6, 7]))],
        Level.CORE: [(None, CpuSet([core])) for core in range(8)],
    }
    machine = make_machine(Shape(cores=8))
    machine = machine.replace(domains=make_domains(machine.online, parts), nodes=())
    for strategy in ("packages", "l3"):
        made = make_plan(machine, Request(ranks=None, strategy=strategy))
        domains = machine.at(STRATEGIES[strategy].level)
        assert {placement.cpuset for placement in made.placements} == {domain.cpus for domain in domains}


def test_core_kinds_that_partially_overlap_domains_are_ignored():
    kinds = (
        CoreKind(name="performance", cpus=CpuSet(range(3)), strength=1024, source="type"),
        CoreKind(name="efficiency", cpus=CpuSet([3]), strength=600, source="type"),
    )
    sequence = make_nested(4, ({}, {2}, {}, {}), kinds)
    assert balanced(sequence, 2) == [(0, 1), (2, 3)]
    assert [len(level.ranges) for level in find_levels(sequence)] == [1, 2, 2, 2]


def test_nodes_that_contain_packages_are_the_wider_level():
    parts = {
        Level.PACKAGE: [(0, CpuSet([0, 2])), (1, CpuSet([1])), (2, CpuSet([3]))],
        Level.NODE: [(0, CpuSet([0, 2])), (1, CpuSet([1, 3]))],
        Level.CORE: [(None, CpuSet([core])) for core in range(4)],
    }
    machine = make_machine(Shape(cores=4))
    machine = machine.replace(domains=make_domains(machine.online, parts), nodes=())
    assert machine.levels[:2] == (Level.NODE, Level.PACKAGE)
    made = make_plan(machine, Request(ranks=None, strategy="nodes"))
    assert [str(placement.cpuset) for placement in made.placements] == ["0,2", "1,3"]


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
    output = run_with(TOY, "plan", "-n", "auto", "-s", "backwards", "--topology", machine, "--explain")
    assert "2 ranks, backwards" in output
    assert " 0 1 1 0 3 1 place: whole rank 1 1 1 0 2 1 place: whole rank " in output
    assert "ranks: 2 ranks: one per second core." in output
    assert "backwards: every rank gets one core, counted from the end." in output
