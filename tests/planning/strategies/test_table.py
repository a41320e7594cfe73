"""What each strategy is best at, compared with every other way of placing ranks on small machines."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError
from ompbind.machine.model import CoreKind, Level, make_domains
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.planning.strategies.balanced import balanced
from ompbind.planning.strategies.core_sequence import PRIORITY, make_core_sequence, within
from ompbind.planning.strategies.sized import compact, spread
from ompbind.planning.strategies.table import STRATEGIES
from tests.machines import Shape, make_machine
from tests.toys import run_with

LEVELS = (Level.PACKAGE, Level.NODE, Level.L3, Level.L2)
"""The levels that machines for these tests have, each inside the one before."""


def make_nested(cores, borders, kinds=()):
    """A field of single-CPU cores; `borders` tell for each level where domains begin beside wider ones."""
    online, starts, parts = CpuSet(range(cores)), {0}, {}
    for level, more in zip(LEVELS, borders, strict=True):
        starts |= {start for start in more if 0 < start < cores}
        spans = pairwise([*sorted(starts), cores])
        parts[level] = [(number, CpuSet(range(*span))) for number, span in enumerate(spans)]
    machine = make_machine(Shape(cores=cores)).replace(
        domains=make_domains(online, parts), nodes=(), kinds=kinds
    )
    return make_core_sequence(machine, tuple(CpuSet([core]) for core in range(cores)))


def make_regular(sizes):
    """A field of a machine with so many packages, nodes of each, L3s of each, L2s of each, cores of each."""
    *counts, each = sizes
    step = each
    borders = []
    total = each
    for count in counts:
        total *= count
    step = total
    for count in counts:
        step //= count
        borders.append(set(range(0, total, step)))
    return make_nested(total, borders)


borders = st.sets(st.integers(1, 8), max_size=4)
fields = st.builds(make_nested, st.integers(1, 9), st.tuples(borders, borders, borders, borders))
regular = st.builds(
    make_regular,
    st.sampled_from(
        [(1, 2, 1, 1, 4), (2, 1, 1, 1, 4), (2, 2, 1, 1, 2), (1, 2, 2, 1, 2), (1, 1, 2, 2, 2), (1, 3, 1, 1, 3)]
    ),
)


def all_ways(cores, sizes):
    """Yield every way to give each of these cores to a rank, ranks having these sizes in any order."""
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
    """Yield every way to give so many ranks as many cores each as `size`, some cores perhaps to nobody."""
    if not ranks:
        yield []
        return
    for indices in combinations(cores, size):
        rest = [core for core in cores if core > indices[0] and core not in indices]
        yield from ([indices, *more] for more in all_packings(rest, size, ranks - 1))


def domain_of(spans, core):
    return next(number for number, (start, stop) in enumerate(spans) if start <= core < stop)


def crossings(sequence, allocations):
    """How many ranks have cores of several domains, for each level, the most important first."""
    return tuple(
        sum(
            sum(not set(indices).isdisjoint(domain) for domain in sequence.domains(level)) > 1
            for indices in allocations
        )
        for level in PRIORITY
        if sequence.domains(level)
    )


def least_distance(sequence, allocations):
    """How wide the widest level is that keeps even the two nearest ranks apart; 0 for none."""
    spans = [within(division, sequence.whole) for division in sequence.divisions]

    def distance(one, other):
        excluded_by_default = (domain_of(level, one) != domain_of(level, other) for level in spans)
        return next((len(spans) - i for i, yes in enumerate(excluded_by_default) if yes), 0)

    pairs = ((one, other) for a, b in combinations(allocations, 2) for one in a for other in b)
    return min((distance(*pair) for pair in pairs), default=0)


@given(fields, st.data())
def test_balanced_crosses_the_fewest_borders_of_all_equal_shares(sequence, data):
    cores = len(sequence.units)
    ranks = data.draw(st.integers(1, cores))
    allocations = balanced(sequence, ranks)
    assert sorted(core for indices in allocations for core in indices) == list(range(cores))
    small, larger = divmod(cores, ranks)
    sizes = [small + (rank < larger) for rank in range(ranks)]
    assert sorted(map(len, allocations)) == sorted(sizes)
    assert allocations == sorted(allocations)
    best = min(crossings(sequence, ways) for ways in all_ways(list(range(cores)), sizes))
    assert crossings(sequence, allocations) == best


def draw_sized(sequence, data):
    size = data.draw(st.integers(1, len(sequence.units)))
    return data.draw(st.integers(1, len(sequence.units) // size)), size


def check_sized(sequence, ask, allocations):
    ranks, units = ask
    assert [len(indices) for indices in allocations] == [units] * ranks
    assert len({core for indices in allocations for core in indices}) == units * ranks
    assert allocations == sorted(allocations)


@given(fields, st.data())
def test_compact_and_spread_give_every_rank_cores_of_its_own(sequence, data):
    ask = draw_sized(sequence, data)
    check_sized(sequence, ask, compact(sequence, *ask))
    check_sized(sequence, ask, spread(sequence, *ask))


@given(regular, st.data())
def test_compact_and_spread_cross_the_fewest_borders(sequence, data):
    ask = draw_sized(sequence, data)
    ranks, units = ask
    ways = list(all_packings(range(len(sequence.units)), units, ranks))
    best = min(crossings(sequence, way) for way in ways)
    packed, scattered = compact(sequence, *ask), spread(sequence, *ask)
    assert crossings(sequence, packed) == crossings(sequence, scattered) == best
    uncrossed = [way for way in ways if crossings(sequence, way) == best]
    assert least_distance(sequence, scattered) == max(least_distance(sequence, way) for way in uncrossed)
    assert packed[-1][-1] == min(max(core for indices in way for core in indices) for way in uncrossed)


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
def test_compact_stays_near_and_spread_goes_far(sizes, ask, packed, scattered):
    sequence = make_regular(sizes)
    assert compact(sequence, *ask) == packed
    assert spread(sequence, *ask) == scattered


def test_hybrid_processors_are_packed_from_the_start_although_only_weak_cores_share_caches():
    kinds = (
        CoreKind(name="performance", cpus=CpuSet(range(4)), strength=1024, source="type"),
        CoreKind(name="efficiency", cpus=CpuSet(range(4, 8)), strength=600, source="type"),
    )
    sequence = make_nested(8, ({}, {}, {}, {1, 2, 3, 4}), kinds)
    assert compact(sequence, 1, 2) == [(0, 1)]


@given(fields, st.data())
def test_domains_are_given_away_whole_or_split_evenly(sequence, data):
    name = data.draw(st.sampled_from(["packages", "nodes", "l3", "l2"]))
    spans = [(indices[0], indices[-1] + 1) for indices in sequence.domains(STRATEGIES[name].level)]
    ranks = data.draw(st.integers(1, len(sequence.units)))
    allocations = STRATEGIES[name].divide(sequence, ranks, None)
    hosts = [{domain_of(spans, core) for core in indices} for indices in allocations]
    assert all(len(host) == 1 for host in hosts)
    for number, (start, stop) in enumerate(spans):
        mine = [len(indices) for indices, host in zip(allocations, hosts, strict=True) if host == {number}]
        assert sum(mine) in (0, stop - start)
        assert not mine or max(mine) - min(mine) <= 1
        assert bool(mine) == (number < ranks), "every domain has a rank before any has two"


@pytest.mark.parametrize(
    ("cores", "border", "ranks", "allocations"),
    [
        (9, 6, 4, [(0, 1), (2, 3), (4, 5), (6, 7, 8)]),
        (12, 4, 5, [(0, 1), (2, 3), (4, 5, 6), (7, 8, 9), (10, 11)]),
    ],
)
def test_more_ranks_than_domains_go_where_shares_are_largest(cores, border, ranks, allocations):
    sequence = make_nested(cores, ({}, {border}, {}, {}))
    assert STRATEGIES["nodes"].divide(sequence, ranks, None) == allocations


def test_ranks_larger_than_domains_end_where_these_do():
    sequence = make_nested(7, ({}, {}, {1, 3, 5}, {}))
    assert balanced(sequence, 2) == [(0, 1, 2), (3, 4, 5, 6)]


def test_spread_keeps_ranks_in_nodes_of_their_own_where_packages_have_different_numbers_of_them():
    sequence = make_nested(8, ({2}, {4, 6}, {}, {}))
    assert spread(sequence, 4, 1) == [(0,), (2,), (4,), (6,)]


def test_ranks_of_a_level_stay_on_cores_that_have_it():
    parts = {Level.NODE: [(0, CpuSet(range(2)))], Level.CORE: [(None, CpuSet([core])) for core in range(4)]}
    machine = make_machine(Shape(cores=4))
    machine = machine.replace(domains=make_domains(machine.online, parts), nodes=())
    made = make_plan(machine, Request(ranks=2, strategy="nodes"))
    assert [one.cpus for one in made.placements] == [(0,), (1,)]
    with pytest.raises(PlanError, match="3 ranks do not fit on 2 CPUs"):
        make_plan(machine, Request(ranks=3, strategy="nodes"))


def test_a_domain_in_pieces_is_one_domain():
    """Two L3s of which each has a piece of the other between its cores, as odd machines tell them."""
    parts = {
        Level.PACKAGE: [(0, CpuSet([0, 1, 4, 5])), (1, CpuSet([2, 3, 6, 7]))],
        Level.L3: [(None, CpuSet([0, 1, 2, 3])), (None, CpuSet([4, 5, 6, 7]))],
        Level.CORE: [(None, CpuSet([core])) for core in range(8)],
    }
    machine = make_machine(Shape(cores=8))
    machine = machine.replace(domains=make_domains(machine.online, parts), nodes=())
    for strategy in ("packages", "l3"):
        made = make_plan(machine, Request(ranks=None, strategy=strategy))
        assert {one.cpuset for one in made.placements} == {
            one.cpus for one in machine.at(STRATEGIES[strategy].level)
        }


def test_kinds_that_cut_through_domains_count_for_nothing():
    kinds = (
        CoreKind(name="performance", cpus=CpuSet(range(3)), strength=1024, source="type"),
        CoreKind(name="efficiency", cpus=CpuSet([3]), strength=600, source="type"),
    )
    sequence = make_nested(4, ({}, {2}, {}, {}), kinds)
    assert balanced(sequence, 2) == [(0, 1), (2, 3)]
    assert [len(one.spans) for one in sequence.divisions] == [1, 2, 2, 2]


def test_nodes_that_hold_packages_are_wider_than_these():
    parts = {
        Level.PACKAGE: [(0, CpuSet([0, 2])), (1, CpuSet([1])), (2, CpuSet([3]))],
        Level.NODE: [(0, CpuSet([0, 2])), (1, CpuSet([1, 3]))],
        Level.CORE: [(None, CpuSet([core])) for core in range(4)],
    }
    machine = make_machine(Shape(cores=4))
    machine = machine.replace(domains=make_domains(machine.online, parts), nodes=())
    assert machine.levels[:2] == (Level.NODE, Level.PACKAGE)
    made = make_plan(machine, Request(ranks=None, strategy="nodes"))
    assert [str(one.cpuset) for one in made.placements] == ["0,2", "1,3"]


TOY = """
from ompbind.planning.strategies.table import STRATEGIES, Strategy
STRATEGIES["backwards"] = Strategy(
    divide=lambda field, ranks, units: [(len(field.units) - 1 - rank,) for rank in range(ranks)],
    summary="one core, counted from the end",
    auto_ranks=lambda field, each: len(field.units) // 2,
    label="one for every second core",
)
"""


def test_a_strategy_is_one_function_and_one_row():
    assert "cores, all, backwards." in run_with(TOY, "plan", "--help")
    machine = "synthetic:pack:1 core:4 pu:1"
    told = run_with(TOY, "plan", "-n", "auto", "-s", "backwards", "--topology", machine, "--explain")
    assert "2 ranks, backwards" in told
    assert " 0 1 1 0 3 1: all its CPUs 1 1 1 0 2 1: all its CPUs " in told
    assert "ranks: 2 ranks: one for every second core." in told
    assert "backwards: every rank gets one core, counted from the end." in told
