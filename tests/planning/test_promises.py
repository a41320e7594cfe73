"""Properties of every plan, for random machines and requests with all options together."""

import shlex
from itertools import pairwise

from hypothesis import event, given
from hypothesis import strategies as st

from ompbind.commands.environment import make_thread_variables
from ompbind.cpuset import CpuSet, union
from ompbind.errors import MaskError, PlanError
from ompbind.masks.mask import SELECTABLE, parse_mask
from ompbind.openmp.binding import TEXT_LIMIT, Bind, ProcBind
from ompbind.openmp.variables import MASK_COUNTS, OVERRIDING_VARIABLES, PROCESS_COUNTS, THREAD_COUNTS
from ompbind.planning.allocation import divide_service
from ompbind.planning.draft import SMT8_AUTO_LIMIT, uses_only_core
from ompbind.planning.planner import make_plan
from ompbind.planning.request import MemoryMode, Request, Sharing
from ompbind.planning.strategies import STRATEGIES
from ompbind.programs.command import Workload
from ompbind.report.export import render_mask
from tests.long import examples
from tests.machines import Shape, make_kinds, make_machine

shapes = st.builds(
    Shape, packages=st.integers(1, 4), nodes=st.integers(1, 2), l3s=st.integers(1, 2),
    cores=st.integers(1, 5), smt=st.sampled_from([1, 2, 8]),
    numbering=st.sampled_from(["adjacent", "split", "round-robin"]),
)  # fmt: skip


@st.composite
def machines(draw):
    """Draw a machine with some allowed CPUs, and perhaps with core kinds, isolated CPUs and a quota."""
    machine = make_machine(draw(shapes))
    some = st.sets(st.sampled_from(list(machine.online)), min_size=1).map(CpuSet)
    performance = union(machine.table.cores[: draw(st.integers(1, len(machine.table.cores)))])
    efficiency = machine.online - performance
    some_nodes = st.sets(st.sampled_from([node.number for node in machine.nodes]), min_size=1).map(CpuSet)
    return machine.replace(
        memory_allowed=draw(st.none() | some_nodes),
        allowed=draw(st.just(machine.online) | some),
        kinds=draw(st.just(()) | st.just(make_kinds(performance, efficiency) if efficiency else ())),
        isolated=draw(st.just(CpuSet()) | some),
        quota=draw(st.sampled_from([None, None, 0.5, 2.0, 7.5])),
    )


@st.composite
def parts(draw, machine):
    number = st.sampled_from(list(machine.allowed)).map(str)
    level = draw(st.sampled_from([level for level in SELECTABLE if machine.at(level, machine.allowed)]))
    last = len(machine.at(level, machine.allowed)) - 1
    domain = st.integers(0, last).map(lambda index: f"{level}:{index}")
    return ",".join(draw(st.lists(number | domain, min_size=1, max_size=4)))


@st.composite
def cases(draw):
    machine = draw(machines())
    several = st.lists(parts(machine), min_size=1, max_size=3).map("|".join)
    text = draw(st.none() | st.none() | several | st.sampled_from(["auto", "none", "all"]))
    reserve, reserve_total = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (2, 0), (0, 1), (0, 3)]))
    service = draw(st.sampled_from([0, 0, 1, 2]))
    total, each = (0, 0) if service else draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (3, 0), (1, 1)]))
    strategy = draw(st.sampled_from(list(STRATEGIES)))
    takes_cores = STRATEGIES[strategy].takes_cores and text in (None, "auto", "all")
    bind = draw(st.sampled_from([bind for bind in Bind if not ((service or total) and bind is Bind.EXACT)]))
    choices = {
        "ranks": ["auto", *range(1, 13)], "threads": [None, None, 1, 2, 3, 4],
        "smt": ["auto", "auto", "all", 1, 2, 3], "sibling": ["first", "last"],
        "cores": [None, None, 1, 2, 3] if takes_cores else [None], "service_optional": [False, True],
        "processes_per_rank": [1, 1, 2, 5] if bind in (Bind.RANK, Bind.NONE) else [1],
        "workload": [None, Workload(program="/bin/python3", python="/bin/python3")],
        "proc_bind": list(ProcBind), "core_kind": ["all", "all", "all", "performance", "efficiency"],
    }  # fmt: skip
    return machine, Request(
        mask=parse_mask(text) if text else None, strategy=strategy, bind=bind, reserve=reserve,
        reserve_total=reserve_total, service_cores=service, service_total=total, service_each=each,
        **{name: draw(st.sampled_from(values)) for name, values in choices.items()},
    )  # fmt: skip


def codes_of(made):
    return {note.code for note in made.notes}


def is_shared(request):
    return request.is_unbound or (request.needs_strategy and STRATEGIES[request.strategy].overlapping)


@given(cases(), st.sampled_from(MemoryMode))
def test_every_plan_keeps_its_promises(case, memory):
    machine, request = case[0], case[1].replace(memory=memory)
    try:
        made = make_plan(machine, request)
    except (PlanError, MaskError) as error:
        event(type(error).__name__)
        assert error.hint
        return
    event("plan")
    assert made == make_plan(machine, request)
    for check in (check_sets, check_threads_of_cores, check_other_cores, check_threads, check_ranks):
        check(made)
    if request.needs_strategy:
        check_strategy(made)


@examples(20)
@given(cases(), st.booleans())
def test_the_mask_of_a_plan_gives_the_same_cpus_again(case, shares):
    machine, request = case
    request = request.replace(service_total=0, service_each=0, bind=Bind.RANK)
    request = request.replace(sharing=Sharing.SHARE) if shares else request
    try:
        made = make_plan(machine, request)
    except (PlanError, MaskError):
        return
    words = shlex.split(render_mask(made))
    given = dict(pairwise(words))
    again = Request(
        ranks=int(given.get("-n", 1)),
        mask=parse_mask(given["-m"]),
        service_cores=int(given.get("--service-cores", 0)),
        sharing=Sharing.SHARE if "--share" in words else Sharing.WARN,
        bind=Bind(given.get("--bind", "rank")),
    )
    event(" ".join(word for word in words if word.startswith("-")))
    assert (again.bind is Bind.NONE) == made.request.is_unbound
    for old, new in zip(made.placements, make_plan(machine, again).placements, strict=True):
        assert (new.cpus, new.service_cpus) == (old.cpus, old.service_cpus)


def check_sets(made):
    """Check that ranks have allowed CPUs, and only those that the request names, and share none unasked."""
    machine, request = made.machine, made.request
    sets = [placement.cpuset for placement in made.placements]
    assert request.ranks in ("auto", len(sets))
    assert [placement.rank for placement in made.placements] == list(range(len(sets)))
    assert all(sets)
    assert made.used == union(sets)
    assert made.used | made.reserved <= machine.allowed
    assert made.reserved.isdisjoint(made.used)
    assert made.idle == machine.allowed - made.used - made.reserved
    if not is_shared(request):
        assert sum(map(len, sets)) == len(made.used)
    if request.mask is None:
        assert made.used <= machine.default_cpus
    if not request.is_unbound:
        assert made.used <= machine.cpus_of_kind(request.core_kind)


def check_threads_of_cores(made):
    machine, request = made.machine, made.request
    is_default = request.mask is None or request.mask.text == "auto"
    is_sharing = "shared-cores" in codes_of(made)
    for cpus in machine.table.cores if not request.is_unbound else ():
        limit = len(cpus)
        if isinstance(request.smt, int):
            limit = request.smt
        elif request.smt == "auto" and is_default and not is_sharing:
            every = len(cpus) if uses_only_core(machine, request) else 1
            limit = SMT8_AUTO_LIMIT if len(cpus) >= 8 else every
        assert len(cpus & made.compute) <= limit
        usable = tuple(cpus & machine.default_cpus)
        if not cpus.isdisjoint(made.compute) and is_default and not is_sharing:
            chosen = usable[:limit] if request.sibling == "first" else usable[-limit:]
            assert tuple(cpus & made.used) == chosen  # some of them may be service CPUs


def check_other_cores(made):
    """Check that reserved and service CPUs are as many as requested, and that no rank computes there."""
    machine, request = made.machine, made.request
    reserved = machine.table.rows(made.reserved)
    assert machine.table.whole(made.reserved) & machine.allowed == made.reserved
    assert union(placement.reserved for placement in made.placements) == made.reserved
    if request.reserve and not is_shared(request):
        assert len(reserved) == request.reserve * len(made.placements)
    if request.reserve_total and not request.is_unbound:
        assert len(reserved) == request.reserve_total
    numbers = divide_service(request, len(made.placements))
    sized = request.cores or (request.threads and STRATEGIES[request.strategy].sized)
    in_cores = request.needs_strategy and bool(sized)
    for placement, number in zip(made.placements, numbers, strict=True):
        service = placement.service_cpus
        assert service.isdisjoint(made.compute | made.reserved)
        if numbers[-1] and not in_cores:
            most = len(placement.cpuset) - request.service_optional
            assert len(service) == min(most, sum(numbers) if is_shared(request) else number)
            assert not service or service.first > max(placement.cpus)
            continue
        each = request.service_cores + divide_service(request, request.rank_count or 1)[-1]
        assert len(machine.table.rows(service)) == each
        usable = machine.default_cpus & machine.cpus_of_kind(request.core_kind)
        assert request.mask is not None or service == machine.table.whole(service) & usable


def check_threads(made):
    threads = [placement.threads for placement in made.placements]
    cpus = [len(placement.cpus) for placement in made.placements]
    if made.request.threads is not None:
        assert threads == [made.request.threads] * len(cpus)
    else:
        assert sum(threads) <= max(made.machine.quota or sum(cpus), len(cpus))
    assert len(set(zip(cpus, threads, strict=True))) == len(set(cpus))


def check_ranks(made):
    nodes = {cpu: node.number for node in made.machine.nodes for cpu in node.cpus}
    allowed = set(nodes.values() if made.machine.memory_allowed is None else made.machine.memory_allowed)
    for placement in made.placements:
        assert len(placement.cpus) == len(placement.compute)
        assert set(placement.nodes) == {nodes[cpu] for cpu in placement.cpus}
        assert set(placement.nodes) & allowed <= set(placement.memory_nodes) <= allowed
        assert placement.memory is None or set(placement.memory.nodes) <= allowed
        assert placement.memory_nodes or not allowed
        assert union(placement.places) in (CpuSet(), placement.cpuset)
        first, *workers = placement.places or [placement.cpuset]
        if placement.service_cpus:
            assert first == placement.cpuset
            assert all(place <= placement.compute for place in workers)
            is_unbound = made.request.effective_bind is Bind.NONE
            if not (is_unbound or codes_of(made) & {"service-workers", "places-too-long"}):
                assert len(workers) == placement.threads - 1
        check_variables(made, placement)


def check_variables(made, placement):
    variables = make_thread_variables(made, placement.rank)
    processes, places = made.request.processes_per_rank, variables["OMP_PLACES"]
    each = dict.fromkeys(THREAD_COUNTS, str(max(1, placement.threads // processes)))
    if processes > 1:
        each.update(dict.fromkeys(PROCESS_COUNTS, str(processes)))
    if made.request.workload and variables["OMP_NUM_THREADS"] is None:  # found by the mask
        assert (processes, placement.threads) == (1, len(placement.cpuset))
        each.update(dict.fromkeys(MASK_COUNTS))
    assert each.items() <= variables.items()
    assert set(OVERRIDING_VARIABLES) <= variables.keys()
    assert (variables["OMP_PROC_BIND"] == "false") == (places is None)
    assert places is None or (len(places) <= TEXT_LIMIT and set(places) <= set("{},:0123456789"))


def check_strategy(made):
    machine, request, strategy = made.machine, made.request, STRATEGIES[made.request.strategy]
    table, ranks = machine.table, made.placements
    without_reserved = request.reserve_total or strategy.overlapping
    own = [table.rows(rank.cpuset if without_reserved else rank.cpuset | rank.reserved) for rank in ranks]
    compute = [table.rows(rank.compute) for rank in ranks]
    sizes = [len(rows) for rows in own]
    if request.cores:
        assert {len(rows) for rows in compute} == {request.cores}
    idle = set(table.rows(made.idle & machine.default_cpus)).difference(*own)
    has_no_idle = not idle or request.mask is not None or request.core_kind != "all"
    if "shared-cores" in codes_of(made):
        assert sizes == [1] * len(sizes)
        assert strategy.level or has_no_idle
        return
    if strategy.sized or request.strategy == "cores":
        assert len(set(sizes)) == 1
    elif request.strategy == "balanced" and not request.cores:
        assert max(sizes) - min(sizes) <= 1
        assert has_no_idle
    # shares are chosen whole, and divided into compute, service and reserved cores afterwards
    is_whole = not (request.cores or (strategy.sized and request.threads))
    firsts = [rows[0] for rows in (own if is_whole else compute)]
    assert strategy.overlapping or firsts == sorted(firsts)
    if strategy.level:
        numbers = table.column(strategy.level)
        assert all(len({numbers[row] for row in rows}) == 1 for rows in compute)
