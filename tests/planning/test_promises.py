"""What every plan promises, whatever the machine and the request: properties over all options together."""

from hypothesis import event, given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet, union
from ompbind.errors import MaskError, PlanError
from ompbind.machine.model import CoreKind, Level, index_by_cpu, touched
from ompbind.masks.grammar import SELECTABLE
from ompbind.masks.mask import parse_mask
from ompbind.openmp.places import TEXT_LIMIT
from ompbind.openmp.variables import DEFEATING, THREAD_COUNTS
from ompbind.planning.allocation import SMT_SUGGESTED
from ompbind.planning.mask_suggestion import suggest_mask
from ompbind.planning.metrics import measure_plan
from ompbind.planning.planner import make_plan
from ompbind.planning.rank_command import make_thread_variables
from ompbind.planning.rationale import make_reasons
from ompbind.planning.request import Bind, ProcBind, Request
from ompbind.planning.strategies.table import STRATEGIES
from tests.machines import Shape, make_machine

shapes = st.builds(
    Shape,
    packages=st.integers(1, 4),
    nodes=st.integers(1, 2),
    l3s=st.integers(1, 2),
    cores=st.integers(1, 5),
    smt=st.sampled_from([1, 2, 8]),
    numbering=st.sampled_from(["adjacent", "split", "round-robin"]),
)


@st.composite
def machines(draw):
    """A machine of which some CPUs may be used, perhaps with kinds of cores, CPUs set apart, and a quota."""
    machine = make_machine(draw(shapes))
    cores = [core.cpus for core in machine.at(Level.CORE)]
    some = st.sets(st.sampled_from(list(machine.online)), min_size=1).map(CpuSet)
    strong = union(cores[: draw(st.integers(1, len(cores)))])
    weak = machine.online - strong
    kinds = (
        CoreKind(name="performance", cpus=strong, strength=1024, source="type"),
        CoreKind(name="efficiency", cpus=weak, strength=500, source="type"),
    )
    return machine.replace(
        allowed=draw(st.just(machine.online) | some),
        kinds=draw(st.just(()) | st.just(kinds if weak else ())),
        isolated=draw(st.just(CpuSet()) | some),
        quota=draw(st.sampled_from([None, None, 0.5, 2.0, 7.5])),
    )


@st.composite
def parts(draw, machine):
    """A part of a mask that names something of this machine, by number or as a domain."""
    number = st.sampled_from(list(machine.allowed)).map(str)
    levels = [level for level in SELECTABLE if touched(machine.at(level), machine.allowed)]
    level = draw(st.sampled_from(levels))
    count = len(touched(machine.at(level), machine.allowed))
    domain = st.integers(0, count - 1).map(lambda index: f"{level}:{index}")
    return ",".join(draw(st.lists(number | domain, min_size=1, max_size=4)))


@st.composite
def cases(draw, masks=True):
    """A machine, and a request for it that it may be able to serve or not; without a mask if so asked."""
    machine = draw(machines())
    several = st.lists(parts(machine), min_size=1, max_size=3).map("|".join)
    words = st.sampled_from(["auto", "none", "all"])
    text = draw(st.none() | st.none() | several | words if masks else st.none())
    reserve = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (2, 0), (0, 1), (0, 3)]))
    request = Request(
        ranks=draw(st.none() | st.integers(1, 12)),
        mask=parse_mask(text) if text else None,
        strategy=draw(st.sampled_from(list(STRATEGIES))),
        smt=draw(st.sampled_from(["auto", "auto", "all", 1, 2, 3])),
        sibling=draw(st.sampled_from(["first", "last"])),
        threads=draw(st.none() | st.integers(1, 4)),
        reserve=reserve[0],
        reserve_total=reserve[1],
        bind=draw(st.sampled_from(list(Bind))),
        proc_bind=draw(st.sampled_from(list(ProcBind))),
        core_kind=draw(st.sampled_from(["all", "all", "all", "performance", "efficiency"])),
    )
    return machine, request


def is_word(request, word):
    return request.mask is not None and request.mask.text == word


def is_divided(request):
    """Tell whether a strategy divides, rather than a mask with a part for every rank, or `none`."""
    return request.mask is None or (len(request.mask.parts) < 2 and not is_word(request, "none"))


@given(cases())
def test_every_plan_keeps_its_promises(case):
    machine, request = case
    try:
        made = make_plan(machine, request)
    except (PlanError, MaskError) as error:
        event(type(error).__name__)
        assert error.hint or suggest_mask(machine, request)
        return
    event("plan")
    assert made == make_plan(machine, request)
    check_sets(made)
    check_threads_of_cores(made)
    check_reserve(made)
    check_ranks(made)
    if is_divided(request):
        check_strategy(made)
    assert make_reasons(made, measure_plan(made))


def check_sets(made):
    sets = [one.cpuset for one in made.placements]
    assert made.request.ranks in (None, len(sets))
    assert [one.rank for one in made.placements] == list(range(len(sets)))
    assert all(sets)
    assert made.used == union(sets)
    assert made.used <= made.machine.allowed
    assert made.reserved <= made.machine.allowed
    assert made.reserved.isdisjoint(made.used)
    assert made.idle == made.machine.allowed - made.used - made.reserved
    if not (
        STRATEGIES[made.request.strategy].overlapping
        or (made.request.mask and made.request.mask.text == "none")
    ):
        assert sum(map(len, sets)) == len(made.used), "ranks share no CPU"
    if made.request.mask is None:
        assert made.used <= made.machine.ordinary
    if made.request.core_kind != "all" and not is_word(made.request, "none"):
        assert made.used <= made.machine.of_kind(made.request.core_kind)


def check_threads_of_cores(made):
    """How many CPUs of each core are used, and which."""
    machine, request = made.machine, made.request
    free = request.mask is None or is_word(request, "auto")
    crowded = "shared-cores" in {note.code for note in made.notes}
    for core in machine.at(Level.CORE):
        used = core.cpus & made.used
        limit = len(core.cpus)
        if is_word(request, "none"):
            continue
        if isinstance(request.smt, int):
            limit = request.smt
        elif request.smt == "auto" and free and not crowded:
            limit = SMT_SUGGESTED if len(core.cpus) >= 8 else 1
        assert len(used) <= limit
        usable = tuple(core.cpus & machine.ordinary)
        if used and free and not crowded:
            chosen = usable[:limit] if request.sibling == "first" else usable[-limit:]
            assert tuple(used) == chosen


def check_reserve(made):
    """Whole cores are reserved, as many as asked, and each rank knows of its own."""
    cores = touched(made.machine.at(Level.CORE), made.reserved)
    assert all(core.cpus & made.machine.allowed <= made.reserved for core in cores)
    if is_word(made.request, "none"):
        return
    if made.request.reserve and not STRATEGIES[made.request.strategy].overlapping:
        assert len(cores) == made.request.reserve * len(made.placements)
    if made.request.reserve_total:
        assert len(cores) == made.request.reserve_total
    assert union(one.reserved for one in made.placements) == made.reserved


def check_ranks(made):
    """Threads, places, nodes and variables of every rank."""
    nodes = {cpu: node.number for node in made.machine.nodes for cpu in node.cpus}
    quota, handed_out = made.machine.quota, sum(len(one.cpus) for one in made.placements)
    for one in made.placements:
        assert len(one.cpus) == len(one.cpuset)
        assert set(one.nodes) == {nodes[cpu] for cpu in one.cpus}
        if made.request.threads is not None:
            assert one.threads == made.request.threads
        elif quota is None:
            assert one.threads == len(one.cpus)
        else:
            assert one.threads == max(1, min(len(one.cpus), int(quota * len(one.cpus) / handed_out)))
        assert union(one.places) in (CpuSet(), one.cpuset)
        check_variables(made, one)


def check_variables(made, one):
    variables = make_thread_variables(one, made.request)
    assert all(variables[name] == str(one.threads) for name in THREAD_COUNTS)
    places = variables["OMP_PLACES"]
    assert set(DEFEATING) <= variables.keys()
    if places is None:
        assert variables["OMP_PROC_BIND"] == "false"
        return
    assert len(places) <= TEXT_LIMIT
    assert set(places) <= set("{},:0123456789")
    assert variables["OMP_PROC_BIND"] in ("true", "close", "spread")


def check_strategy(made):
    machine, strategy = made.machine, STRATEGIES[made.request.strategy]
    core_of = index_by_cpu(machine.at(Level.CORE))
    own = [{core_of[cpu] for cpu in (one.cpuset | one.reserved)} for one in made.placements]
    if made.request.reserve_total or strategy.overlapping:
        own = [{core_of[cpu] for cpu in one.cpuset} for one in made.placements]
    sizes = [len(cores) for cores in own]
    crowded = "shared-cores" in {note.code for note in made.notes}
    if crowded:
        assert sizes == [1] * len(sizes)
    elif strategy.sized or made.request.strategy == "cores":
        assert len(set(sizes)) == 1
    elif made.request.strategy == "balanced":
        assert max(sizes) - min(sizes) <= 1
        idle = {core_of[cpu] for cpu in made.idle & machine.ordinary} - {
            core for mine in own for core in mine
        }
        assert not idle or made.request.mask is not None or made.request.core_kind != "all"
    if not (strategy.overlapping or crowded):
        firsts = [min(core_of[cpu] for cpu in one.cpus) for one in made.placements]
        assert firsts == sorted(firsts), "ranks are numbered along the machine"
    if strategy.level and not crowded:
        domain_of = index_by_cpu(machine.at(strategy.level))
        assert all(len({domain_of.get(cpu) for cpu in one.cpus}) == 1 for one in made.placements)
