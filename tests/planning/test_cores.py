"""Cores that compute, service cores, what places and variables follow, and measures of plans."""

import pytest

from ompbind.commands.environment import RunSpec, make_identities
from ompbind.commands.rank_command import make_command
from ompbind.cpuset import CpuSet, union
from ompbind.errors import PlanError, RequestError
from ompbind.openmp.binding import Bind, ProcBind
from ompbind.planning.metrics import measure, measure_plan
from tests.machines import Shape, make_kinds, make_machine
from tests.planning.test_planner import DUAL, SNC, notes, plan
from tests.planning.test_runtime_choice import workload


@pytest.mark.parametrize(("options", "expected"), [
    ({"cores": 3, "threads": 2}, "0-2 and ; 4-6 and "),
    # service cores are whole cores, from the share that the strategy gives
    ({"service_cores": 1}, "0-2 and 3,11; 4-6 and 7,15"),
    ({"service_cores": 1, "smt": "all"}, "0-2,8-10 and 3,11; 4-6,12-14 and 7,15"),
    ({"service_cores": 1, "reserve_total": 2}, "0-1 and 2,10; 4-5 and 6,14"),
    ({"service_cores": 1, "strategy": "all"}, "0-6 and 7,15; 0-6 and 7,15"),
    # of ranks that share all cores: those that compute are in the fewest domains
    ({"ranks": 1, "service_cores": 1, "strategy": "all", "mask": "3-7"}, "4-7 and 3"),
    ({"ranks": 1, "service_cores": 1, "mask": "none"}, "0-6,8-14 and 7,15"),
    # the compute cores of rank 1 stay in one node
    ({"ranks": 3, "service_cores": 1}, "0-1 and 2,10; 4-5 and 3,11; 6 and 7,15"),
    # on top of the cores and threads that are requested
    ({"service_cores": 1, "cores": 2, "reserve": 1}, "0-1 and 2,10; 4-5 and 6,14"),
    ({"service_cores": 1, "threads": 2, "strategy": "compact"}, "0-1 and 2,10; 4-5 and 6,14"),
    # of a mask, only CPUs that it names
    ({"ranks": 1, "service_cores": 1, "mask": "0-1,8-9", "smt": 1}, "0 and 1,9"),
    ({"service_cores": 1, "mask": "3,1,0,11|4-5"}, "1,3,11 and 0; 4 and 5"),
    # service CPUs are the highest of each rank
    ({"service_total": 5}, "0-1 and 2-3; 4 and 5-7"),
    ({"service_each": 1, "service_total": 1}, "0-2 and 3; 4-5 and 6-7"),
    ({"service_total": 2, "smt": "all"}, "0-3,8-10 and 11; 4-7,12-14 and 15"),
    ({"service_total": 2, "mask": "3,1,0,11|4-5"}, "0-1,3 and 11; 4 and 5"),
    ({"service_total": 3, "strategy": "all"}, "0-4 and 5-7; 0-4 and 5-7"),
    ({"service_total": 3, "cores": 1}, "0 and 1-2,9-10; 4 and 5-6,13-14"),
    ({"ranks": 3, "service_total": 9, "mask": "0|1|2-3", "service_optional": True},
     "0 and ; 1 and ; 2 and 3"),
])  # fmt: skip
def test_ranks_have_service_cores_or_service_cpus(options, expected):
    made = plan(DUAL, **{"ranks": 2, **options})
    assert "; ".join(f"{rank.compute} and {rank.service_cpus}" for rank in made.placements) == expected
    assert ("service-missing" in notes(made)) is ("service_optional" in options)
    assert made.used == union(placement.cpuset for placement in made.placements)
    assert made.idle.isdisjoint(made.used)


@pytest.mark.parametrize(("options", "message", "hint"), [
    ({"ranks": 3, "cores": 3}, "3 ranks of 3 cores need 9 cores, but 8 are usable", "at most 2 ranks"),
    ({"ranks": 2, "cores": 3, "service_cores": 1, "reserve": 1},
     "2 ranks of 3 cores, 1 service core and 1 reserved core need 10 cores, but 8 are usable",
     "at most 1 rank, or fewer cores with -c"),
    ({"cores": 4, "service_cores": 1, "strategy": "nodes"},
     "do not fit, each in one NUMA node: the largest NUMA node has 4 usable cores", "fewer cores with -c"),
    ({"cores": 2, "threads": 3}, "-c 2 gives rank 0 only 2 CPUs", "use at most -t 2, or request more"),
    ({"ranks": 9, "service_cores": 1}, "rank 8 would have no core left", "use fewer service cores"),
    ({"ranks": 2, "service_cores": 2, "reserve": 2}, "it gets 4 cores, reserves 2", "reserve fewer"),
    ({"ranks": 2, "service_total": 7}, "rank 1 would have no CPU left", "reserve fewer CPUs"),
    ({"cores": 1, "strategy": "all"}, "no effect with --strategy all", "use balanced, compact"),
    ({"ranks": 17}, "17 ranks do not fit on 16 CPUs", ""),
    ({"ranks": 9, "smt": 1}, "9 ranks do not fit on 8 CPUs", ""),
    ({"ranks": 8, "reserve": 1}, "rank 0 would have no core left", ""),
    ({"ranks": 2, "reserve": 1, "mask": "0-3|4"}, "rank 1 would have no core left", ""),
    ({"reserve_total": 8}, "cannot reserve 8 cores of 8 usable cores and start 1 rank", ""),
    ({"ranks": 2, "reserve_total": 1, "mask": "0|1"}, "rank 0 would have no core left", ""),
    ({"ranks": 12, "strategy": "books"}, "has no book domains", "use balanced, compact, spread, nodes"),
    # these no machine can satisfy: there is no hint on numbers
    ({"ranks": 0}, "ranks=0 is too low", None), ({"ranks": 1 << 20}, "cannot plan 1048576 ranks", None),
    ({"smt": 0}, "smt=0 is too low", None), ({"strategy": "fast"}, "unknown strategy 'fast'", None),
    ({"reserve": 1, "reserve_total": 1}, "--reserve and --reserve-total contradict", None),
    ({"cores": 1, "mask": "0|1"}, "the mask gives each rank its CPUs", None),
    ({"cores": 1, "mask": "none"}, "the mask gives each rank all CPUs", None),
    ({"service_cores": -1}, "service_cores=-1 is too low", None),
    ({"service_cores": 1, "bind": Bind.EXACT}, "--bind exact leaves no thread", None),
    ({"processes_per_rank": 2, "bind": Bind.THREAD}, "would bind their threads to the same places", None),
])  # fmt: skip
def test_requests_that_do_not_fit_are_an_error_with_the_numbers(options, message, hint):
    with pytest.raises(RequestError if hint is None else PlanError) as caught:
        plan(DUAL, **options)
    assert message in caught.value.message
    assert caught.value.hint
    assert (hint or "") in caught.value.hint


@pytest.mark.parametrize(("bind", "places", "proc_bind"), [
    (Bind.RANK, "{0,1,2,8,9,10},{0,1,8,9},{0,1,8,9},{0,1,8,9}", "close"),
    (Bind.CORE, "{0,1,2,8,9,10},{0,8},{1,9},{1,9}", "spread"),
    (Bind.THREAD, "{0,1,2,8,9,10},{8},{1},{9}", "spread"), (Bind.NONE, None, "false"),
])  # fmt: skip
def test_only_the_first_place_has_service_cpus(bind, places, proc_bind):
    made = plan(DUAL, mask="0,8,1,9,2,10", service_cores=1, bind=bind, proc_bind=ProcBind.SPREAD)
    command = make_command(made, *make_identities(1), RunSpec(argv=("app",), run_id="run", base={}))
    assert command.cpus == CpuSet([0, 1, 2, 8, 9, 10])
    assert command.env["OMPBIND_CPUS"] == "0,8,1,9"
    assert command.env["OMPBIND_SERVICE_CPUS"] == "2,10"
    assert command.env["OMP_NUM_THREADS"] == "4"
    assert (command.env.get("OMP_PLACES"), command.env["OMP_PROC_BIND"]) == (places, proc_bind)


def test_each_thread_has_a_place_and_service_cpus_have_no_part_in_the_cpu_quota():
    for threads, places in ((1, "0-3"), (2, "0-3 1"), (5, "0-3 1 2 0 1")):
        made = plan(Shape(cores=4), service_cores=1, threads=threads, bind=Bind.THREAD)
        assert list(map(str, made.placements[0].places)) == places.split()
    made = plan(DUAL, make_machine(DUAL).replace(quota=4.0), ranks=2, service_cores=2)
    assert [placement.threads for placement in made.placements] == [2, 2]


def test_a_warning_says_that_workers_may_use_service_cpus():
    machine = make_machine(Shape(cores=700, numbering="adjacent"))
    options = {"mask": ",".join(map(str, range(0, 700, 2))), "service_cores": 1}
    made = plan(None, machine=machine, **options)  # places are too long, but for one place
    assert [len(place) for place in made.placements[0].places] == [350]
    assert "OpenMP workers of rank 0 may use service CPUs" in notes(made)["service-workers"]
    with pytest.raises(PlanError, match="may use service CPUs"):
        plan(None, machine=machine, **options, strict=True)
    old = plan(DUAL, service_cores=1, workload=workload("app", "needed omp 14"))
    assert not old.placements[0].places
    assert "service-workers" in notes(old)
    for options in ({}, {"bind": Bind.NONE, "strict": True}, {"mask": "none"}):
        assert "service-workers" not in notes(plan(DUAL, service_cores=1, **options))


def measured(shape, ranks, **changes):
    machine = make_machine(shape, **changes)
    return measure(machine, machine.allowed, [CpuSet.from_list(cpus) for cpus in ranks.split()])


def test_domains_kinds_and_idle_cores_are_counted():
    assert [border.crossing for border in measured(SNC, "2-5 6-9").borders] == [2, 1, 2]
    assert [border.touched for border in measured(SNC, "2-5 0-1 6-15").borders] == [6, 4, 6]
    kinds = make_kinds(*map(CpuSet.from_list, ("0-1,4-5,8-15", "2-3,6-7")))
    assert measured(DUAL, "0-3 4-5 6", kinds=kinds).mixed == 1
    assert measured(DUAL, "0-1 2-3", allowed=CpuSet.from_list("0-4")).idle == 1
    assert measure_plan(plan(DUAL, ranks=2, reserve=1)).idle == 0
    # of plans with service cores: only the cores that compute
    assert not any(
        border.crossing for border in measure_plan(plan(SNC, ranks=3, cores=4, service_cores=1)).borders
    )
    metrics = measure_plan(plan(DUAL, ranks=2, cores=2, service_cores=1))
    assert (metrics.smallest, metrics.largest, metrics.idle) == (2, 2, 2)
    part_of_core = measure_plan(plan(DUAL, mask="0-3", service_cores=1))
    assert part_of_core.idle == 4  # on the other node; CPU 11 is in the core of service CPU 3
