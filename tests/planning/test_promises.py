"""Properties of every plan, for random machines and requests with all options together."""

import shlex
from itertools import pairwise

from hypothesis import event, given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet, union
from ompbind.errors import MaskError, PlanError
from ompbind.machine.model import CoreKind, Level
from ompbind.masks.mask import SELECTABLE, parse_mask
from ompbind.openmp.binding import TEXT_LIMIT, Bind, ProcBind
from ompbind.openmp.variables import MASK_COUNTS, OVERRIDING_VARIABLES, PROCESS_COUNTS, THREAD_COUNTS
from ompbind.planning.allocation import divide_service
from ompbind.planning.draft import SMT8_AUTO_LIMIT
from ompbind.planning.planner import make_plan
from ompbind.planning.rank_command import make_thread_variables
from ompbind.planning.request import MemoryMode, Request, Sharing
from ompbind.planning.strategies import STRATEGIES
from ompbind.programs.command import Workload
from ompbind.report.export import render_mask
from tests.machines import Shape, make_machine

shapes = st.builds(
    Shape, packages=st.integers(1, 4), nodes=st.integers(1, 2), l3s=st.integers(1, 2),
    cores=st.integers(1, 5), smt=st.sampled_from([1, 2, 8]),
    numbering=st.sampled_from(["adjacent", "split", "round-robin"]),
)  # fmt: skip


@st.composite
def machines(draw):
    """Draw a machine with some allowed CPUs, and perhaps with core kinds, isolated CPUs and a quota."""
    machine = make_machine(draw(shapes))
    cores = [core.cpus for core in machine.at(Level.CORE)]
    some = st.sets(st.sampled_from(list(machine.online)), min_size=1).map(CpuSet)
    performance = union(cores[: draw(st.integers(1, len(cores)))])
    efficiency = machine.online - performance
    kinds = tuple(
        CoreKind(name=name, cpus=cpus, strength=strength, source="type")
        for name, cpus, strength in (("performance", performance, 1024), ("efficiency", efficiency, 500))
    )
    some_nodes = st.sets(st.sampled_from([node.number for node in machine.nodes]), min_size=1).map(CpuSet)
    return machine.replace(
        memory_allowed=draw(st.none() | some_nodes),
        allowed=draw(st.just(machine.online) | some),
        kinds=draw(st.just(()) | st.just(kinds if efficiency else ())),
        isolated=draw(st.just(CpuSet()) | some),
        quota=draw(st.sampled_from([None, None, 0.5, 2.0, 7.5])),
    )


@st.composite
def parts(draw, machine):
    """Draw a part of a mask that names CPUs of this machine, by number or as a domain."""
    number = st.sampled_from(list(machine.allowed)).map(str)
    levels = [level for level in SELECTABLE if machine.at(level, machine.allowed)]
    level = draw(st.sampled_from(levels))
    count = len(machine.at(level, machine.allowed))
    domain = st.integers(0, count - 1).map(lambda index: f"{level}:{index}")
    return ",".join(draw(st.lists(number | domain, min_size=1, max_size=4)))


@st.composite
def cases(draw, masks=True):
    """Draw a machine and a request that may be possible on it or not; `masks` False draws no mask."""
    machine = draw(machines())
    several = st.lists(parts(machine), min_size=1, max_size=3).map("|".join)
    words = st.sampled_from(["auto", "none", "all"])
    text = draw(st.none() | st.none() | several | words if masks else st.none())
    reserve = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (2, 0), (0, 1), (0, 3)]))
    service = draw(st.sampled_from([0, 0, 1, 2]))
    total, each = (0, 0) if service else draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (3, 0), (1, 1)]))
    strategy = draw(st.sampled_from(list(STRATEGIES)))
    takes_cores = STRATEGIES[strategy].takes_cores and text in (None, "auto", "all")
    binds = [bind for bind in Bind if not ((service or total) and bind is Bind.EXACT)]
    request = Request(
        ranks=draw(st.none() | st.integers(1, 12)),
        mask=parse_mask(text) if text else None,
        strategy=strategy,
        smt=draw(st.sampled_from(["auto", "auto", "all", 1, 2, 3])),
        sibling=draw(st.sampled_from(["first", "last"])),
        threads=draw(st.none() | st.integers(1, 4)),
        reserve=reserve[0],
        reserve_total=reserve[1],
        cores=draw(st.sampled_from([None, None, 1, 2, 3]) if takes_cores else st.none()),
        service_cores=service,
        service_total=total,
        service_each=each,
        service_optional=draw(st.booleans()),
        bind=(bind := draw(st.sampled_from(binds))),
        processes_per_rank=draw(st.sampled_from([1, 1, 2, 5] if bind in (Bind.RANK, Bind.NONE) else [1])),
        workload=draw(st.none() | st.just(Workload(program="/bin/python3", python="/bin/python3"))),
        proc_bind=draw(st.sampled_from(list(ProcBind))),
        core_kind=draw(st.sampled_from(["all", "all", "all", "performance", "efficiency"])),
    )
    return machine, request


def is_word(request, word):
    return request.mask is not None and request.mask.text == word


def uses_strategy(request):
    """Return whether a strategy allocates the CPUs: not a mask with several parts, and not `none`."""
    return request.mask is None or (len(request.mask.parts) < 2 and not is_word(request, "none"))


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
    checks = (check_sets, check_threads_of_cores, check_reserve, check_service, check_threads, check_ranks)
    for check in (*checks, check_strategy) if uses_strategy(request) else checks:
        check(made)


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
    for old, new in zip(made.placements, make_plan(machine, again).placements, strict=True):
        assert (new.cpus, new.service_cpus) == (old.cpus, old.service_cpus)


def check_sets(made):
    machine, request = made.machine, made.request
    sets = [placement.cpuset for placement in made.placements]
    assert request.ranks in (None, len(sets))
    assert [placement.rank for placement in made.placements] == list(range(len(sets)))
    assert all(sets)
    assert made.used == union(sets)
    assert made.used | made.reserved <= machine.allowed
    assert made.reserved.isdisjoint(made.used)
    assert made.idle == machine.allowed - made.used - made.reserved
    if not (STRATEGIES[request.strategy].overlapping or is_word(request, "none")):
        assert sum(map(len, sets)) == len(made.used), "ranks share no CPU"
    if request.mask is None:
        assert made.used <= machine.default_cpus
    if request.core_kind != "all" and not is_word(request, "none"):
        assert made.used <= machine.cpus_of_kind(request.core_kind)


def check_threads_of_cores(made):
    """Check how many CPUs of each core are used, and which."""
    machine, request = made.machine, made.request
    if is_word(request, "none"):
        return
    is_default = request.mask is None or is_word(request, "auto")
    is_sharing = "shared-cores" in {note.code for note in made.notes}
    for core in machine.at(Level.CORE):
        limit = len(core.cpus)
        if isinstance(request.smt, int):
            limit = request.smt
        elif request.smt == "auto" and is_default and not is_sharing:
            limit = SMT8_AUTO_LIMIT if len(core.cpus) >= 8 else 1
        used = core.cpus & made.compute
        assert len(used) <= limit
        usable = tuple(core.cpus & machine.default_cpus)
        if used and is_default and not is_sharing:
            chosen = usable[:limit] if request.sibling == "first" else usable[-limit:]
            assert tuple(core.cpus & made.used) == chosen  # some of them may be service CPUs


def check_reserve(made):
    """Check that whole cores are reserved, as many as requested, and that each rank has its own."""
    cores = made.machine.at(Level.CORE, made.reserved)
    assert all(core.cpus & made.machine.allowed <= made.reserved for core in cores)
    if is_word(made.request, "none"):
        return
    if made.request.reserve and not STRATEGIES[made.request.strategy].overlapping:
        assert len(cores) == made.request.reserve * len(made.placements)
    if made.request.reserve_total:
        assert len(cores) == made.request.reserve_total
    assert union(placement.reserved for placement in made.placements) == made.reserved


def check_service(made):
    """Check that each rank has service CPUs or whole service cores, as requested, where no other rank is."""
    request = made.request
    overlaps = uses_strategy(request) and STRATEGIES[request.strategy].overlapping
    is_shared = overlaps or is_word(request, "none")
    by_rank = divide_service(request, len(made.placements))
    sized = request.cores or (request.threads and STRATEGIES[request.strategy].sized)
    in_cores = uses_strategy(request) and bool(sized)
    for placement, number in zip(made.placements, by_rank, strict=True):
        if by_rank[-1] and not in_cores:
            cpus = len(placement.cpuset) - 1 if request.service_optional else len(placement.cpuset)
            assert len(placement.service_cpus) == min(cpus, sum(by_rank) if is_shared else number)
            assert not placement.service_cpus or placement.service_cpus.first > max(placement.cpus)
        else:
            check_service_cores(made, placement)
        assert placement.service_cpus.isdisjoint(made.compute)
        assert placement.service_cpus.isdisjoint(made.reserved)
        others = (other for other in made.placements if other is not placement)
        assert is_shared or all(placement.service_cpus.isdisjoint(other.cpuset) for other in others)


def check_service_cores(made, placement):
    """Check that the service CPUs of a rank are whole cores, as many as requested."""
    request = made.request
    usable = made.machine.default_cpus & made.machine.cpus_of_kind(request.core_kind)
    cores = made.machine.at(Level.CORE, placement.service_cpus)
    assert len(cores) == request.service_cores + divide_service(request, request.ranks or 1)[-1]
    if request.mask is None:
        assert placement.service_cpus == union(core.cpus & usable for core in cores)


def check_ranks(made):
    """Check places, nodes and variables of every rank."""
    nodes = {cpu: node.number for node in made.machine.nodes for cpu in node.cpus}
    for placement in made.placements:
        assert len(placement.cpus) == len(placement.compute)
        assert placement.cpuset == placement.compute | placement.service_cpus
        assert set(placement.nodes) == {nodes[cpu] for cpu in placement.cpus}
        allowed = set(nodes.values() if made.machine.memory_allowed is None else made.machine.memory_allowed)
        assert set(placement.memory_nodes) <= allowed
        assert placement.memory is None or set(placement.memory.nodes) <= allowed
        assert placement.memory_nodes or not allowed
        assert set(placement.memory_nodes) >= set(placement.nodes) & allowed
        assert union(placement.places) in (CpuSet(), placement.cpuset)
        if placement.service_cpus:
            check_service_places(made, placement)
        check_variables(made, placement)


def check_threads(made):
    """Check the threads of all ranks together: as requested, one per CPU, or as the quota allows."""
    threads = [placement.threads for placement in made.placements]
    cpus = [len(placement.cpus) for placement in made.placements]
    quota = sum(cpus) if made.machine.quota is None else made.machine.quota
    if made.request.threads is not None:
        assert threads == [made.request.threads] * len(cpus)
    assert made.request.threads is not None or sum(threads) <= max(quota, len(cpus))
    assert len(set(zip(cpus, threads, strict=True))) == len(set(cpus))


def check_service_places(made, placement):
    """Check that every thread has a place, and that no worker has a place with service CPUs."""
    first, *workers = placement.places or [placement.cpuset]
    assert first == placement.cpuset
    assert all(place <= placement.compute for place in workers)
    notes = {note.code for note in made.notes}
    is_unbound = made.request.bind is Bind.NONE or is_word(made.request, "none")
    if not (is_unbound or notes & {"service-workers", "places-too-long"}):
        assert len(workers) == placement.threads - 1


def check_variables(made, placement):
    variables = make_thread_variables(made, placement.rank)
    threads, processes = placement.threads, made.request.processes_per_rank
    each = {name: str(max(1, threads // processes)) for name in THREAD_COUNTS}
    if processes > 1:
        each.update(dict.fromkeys(PROCESS_COUNTS, str(processes)))
    if made.request.workload and variables["OMP_NUM_THREADS"] is None:  # found by the mask
        assert processes == 1
        assert threads == len(placement.cpuset)
        each.update(dict.fromkeys(MASK_COUNTS))
    assert each.items() <= variables.items()
    places = variables["OMP_PLACES"]
    assert set(OVERRIDING_VARIABLES) <= variables.keys()
    if places is None:
        assert variables["OMP_PROC_BIND"] == "false"
        return
    assert len(places) <= TEXT_LIMIT
    assert set(places) <= set("{},:0123456789")
    assert variables["OMP_PROC_BIND"] in ("true", "close", "spread")


def check_strategy(made):
    machine, request, strategy = made.machine, made.request, STRATEGIES[made.request.strategy]
    core_of = machine.table.core_of
    without_reserved = request.reserve_total or strategy.overlapping
    own = [
        {core_of[cpu] for cpu in (rank.cpuset if without_reserved else rank.cpuset | rank.reserved)}
        for rank in made.placements
    ]
    sizes = [len(cores) for cores in own]
    if request.cores:
        assert {len({core_of[cpu] for cpu in rank.cpus}) for rank in made.placements} == {request.cores}
    is_sharing = "shared-cores" in {note.code for note in made.notes}
    if is_sharing:
        assert sizes == [1] * len(sizes)
    elif strategy.sized or request.strategy == "cores":
        assert len(set(sizes)) == 1
    elif request.strategy == "balanced" and not request.cores:
        assert max(sizes) - min(sizes) <= 1
        idle = {core_of[cpu] for cpu in made.idle & machine.default_cpus} - set().union(*own)
        assert not idle or request.mask is not None or request.core_kind != "all"
    if not (strategy.overlapping or is_sharing):
        # shares are chosen whole, and divided into compute, service and reserved cores afterwards
        is_whole = not (request.cores or (strategy.sized and request.threads))
        parts = own if is_whole else [{core_of[cpu] for cpu in rank.cpus} for rank in made.placements]
        firsts = [min(part) for part in parts]
        assert firsts == sorted(firsts), "ranks are numbered along the machine"
    if strategy.level and not is_sharing:
        domain_of = machine.table.number_of(strategy.level)
        assert all(len({domain_of.get(cpu) for cpu in rank.cpus}) == 1 for rank in made.placements)
