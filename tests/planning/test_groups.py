"""Groups of ranks: who gets which CPUs, in which order, and properties of all plans with groups."""

from itertools import combinations, permutations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet, union
from ompbind.errors import OmpbindError, PlanError
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level
from ompbind.masks.mask import parse_mask
from ompbind.openmp.binding import Bind
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import JobCpus, Request, Sharing
from ompbind.workers.placed import make_environment
from tests.machines import Shape, make_kinds, make_machine
from tests.planning.devices.gpus import make_nvidia_gpus
from tests.planning.test_promises import machines

DUAL = make_machine(Shape(packages=2, cores=8, smt=2))  # CPUs 0-15, siblings 16-31
HYBRID = DUAL.replace(kinds=make_kinds(*map(CpuSet.from_list, ("0-3,16-19", "4-15,20-31"))))
GPU = (DeviceKind.GPU,)
WITH_GPUS = DUAL.replace(devices=make_nvidia_gpus())  # four


def groups(machine, *options, occupied=(), **common):
    requests = []
    for name, own in zip("abcdef", options, strict=False):
        mask = parse_mask(own["mask"]) if "mask" in own else None
        requests.append(Request(**{**common, **own, "group": name, "mask": mask}))
    return make_plan(machine, requests, occupied)


def lists(plan):
    return [" ".join(str(placement.cpuset) for placement in part.placements) for part in plan.groups]


@pytest.mark.parametrize(("options", "expected"), [
    (({"cores": 8}, {"ranks": 4, "cores": 2}), ["0-7", "8-9 10-11 12-13 14-15"]),
    (({}, {"ranks": 4}), ["0-7", "8-9 10-11 12-13 14-15"]),  # equal parts
    (({}, {"cores": 4}), ["4-15", "0-3"]),  # who requests cores comes before the rest
    (({}, {"mask": "0-3"}), ["4-15", "0-3"]),  # and a mask before both
    (({"threads": 2, "strategy": "compact"}, {}), ["0-1", "2-15"]),
    (({"strategy": "cores", "ranks": 2}, {}), ["0 1", "8-15"]),
    (({"mask": "0|1", "ranks": 2}, {"mask": "16|17", "ranks": 2}), ["0 1", "16 17"]),  # siblings
    (({"cores": 4}, {"mask": "none"}, {"mask": "none"}), ["0-3", "4-15,20-31", "4-15,20-31"]),
    (({"cores": 4, "reserve": 1}, {}), ["0-3", "5-15"]),
    (({"cores": 4, "service_cores": 1}, {}), ["0-4,20", "5-15"]),
])  # fmt: skip
def test_groups_choose_one_after_the_other(options, expected):
    assert lists(groups(DUAL, *options)) == expected


@pytest.mark.parametrize(("options", "passive"), [
    (({"mask": "0-3"}, {"mask": "2-5"}, {"mask": "8-9"}), "a b"), (({"mask": "0-3"}, {"mask": "3"}), "a"),
    (({"mask": "0-3", "threads": 2}, {"mask": "0-3", "threads": 2}), ""), (({}, {}), ""),
    (({"mask": "0-1"}, {"mask": "0-1"}, {"mask": "4-15", "threads": 1}), "a b"),
    (({"mask": "0-3"}, {"mask": "2-5", "user_variables": (("OMP_WAIT_POLICY", "active"),)}), "a"),
])  # fmt: skip
def test_threads_of_groups_that_share_cpus_wait_passively(options, passive):
    plan = groups(DUAL, *options, sharing=Sharing.SHARE)
    found = [part.request.group for part in plan.groups if any(n.code == "waiting" for n in part.notes)]
    assert found == passive.split()
    variables = [make_environment(plan, rank, {}).get("GOMP_SPINCOUNT") for rank in range(len(options))]
    assert variables == ["0" if part.request.group in found else None for part in plan.groups]


def test_core_kinds_are_divided_before_all_cpus_and_a_group_is_whole_in_a_package_if_it_fits():
    plan = groups(HYBRID, {}, {"core_kind": "performance"}, {"core_kind": "performance"})
    assert lists(plan) == ["4-15", "0-1", "2-3"]
    plan = groups(make_machine(Shape(packages=4, cores=4, smt=1)), {}, {"ranks": 2}, {}, {"ranks": 4})
    packages = [package.cpus for package in plan.machine.at(Level.PACKAGE)]
    assert all(any(part.used <= package for package in packages) for part in plan.groups)


def test_ranks_are_numbered_in_the_group_and_in_the_run():
    plan = groups(DUAL, {"cores": 2, "ranks": 2}, {"ranks": 3})
    assert [[placement.rank for placement in part.placements] for part in plan.groups] == [[0, 1], [0, 1, 2]]
    assert [placement.rank for placement in plan.placements] == [0, 1, 2, 3, 4]
    assert plan.labels == ("a 0", "a 1", "b 0", "b 1", "b 2")
    assert plan.idle == DUAL.online - plan.used
    only = make_plan(DUAL, Request(ranks=2, group="only"))
    assert only.labels == ("only 0", "only 1")
    assert lists(only) == ["0-7 8-15"]


@pytest.mark.parametrize(("options", "message"), [
    (({"mask": "0-3"}, {"mask": "3-5"}), "group b: CPU 3 belongs to another group"),
    (({"cores": 10}, {"cores": 8}), "group b: 1 rank of 8 cores needs 8 cores, but 6 are usable"),
    (({"cores": 15}, {}, {}), ""), (({"cores": 15}, {}, {}, {}), "groups b, c, d: only 2 CPUs left"),
    (({}, {"ranks": 17}), "group b: 17 ranks do not fit on 16 CPUs"),
])  # fmt: skip
def test_an_error_names_the_group(options, message):
    if not message:
        assert groups(DUAL, *options)
        return
    with pytest.raises(OmpbindError) as caught:
        groups(DUAL, *options)
    assert caught.value.message.startswith(message)


def test_with_share_groups_use_the_cpus_of_others_and_all_groups_avoid_other_runs():
    shared = {"sharing": Sharing.SHARE}
    assert lists(groups(DUAL, {"mask": "0-3"}, {"mask": "2-5"}, **shared)) == ["0-3", "2-5"]
    assert lists(groups(DUAL, {"cores": 16}, {}, **shared)) == ["0-15", "0-15"]
    run = LiveRun(run_id="x", pid=1, uid=0, started=1, ranks=(), claimed=CpuSet.from_list("0-7"))
    plan = groups(DUAL, {}, {}, occupied=[run], sharing=Sharing.AVOID)
    assert lists(plan) == ["8-11", "12-15"]
    assert [note.code for note in plan.all_notes].count("avoided") == 1


def test_groups_divide_the_quota_and_the_cpus_of_a_job():
    plan = groups(DUAL.replace(quota=6.0), {"cores": 8}, {"ranks": 4, "cores": 2})
    assert [placement.threads for placement in plan.placements] == [2, 1, 1, 1, 1]
    job = JobCpus(system="Slurm", variable="SLURM_CPUS_ON_NODE", count=4)
    plan = groups(DUAL, {}, {}, job_cpus=job)
    assert all(part.request.is_unbound for part in plan.groups)
    assert [placement.threads for placement in plan.placements] == [2, 2]
    with pytest.raises(PlanError, match="6 ranks do not fit on the 4 CPUs that Slurm allows"):
        groups(DUAL, {"ranks": 3}, {"ranks": 3}, job_cpus=job)


def test_no_device_is_given_twice():
    one_each = {"devices": GPU, "devices_per_rank": 1}
    for options, expected in (
        (({"devices": GPU}, {}, {"devices": GPU, "ranks": 1}), ["gpu:0 gpu:1", "", "gpu:2 gpu:3"]),
        ((one_each, {"devices": GPU}), ["gpu:0", "gpu:1 gpu:2 gpu:3"]),
    ):
        plan = groups(WITH_GPUS, *options)
        given_to = [[device.name for p in part.placements for device in p.devices] for part in plan.groups]
        assert list(map(" ".join, given_to)) == expected
    with pytest.raises(PlanError, match="group b: .*other groups have"):
        groups(WITH_GPUS, {**one_each, "devices_per_rank": 4}, one_each)


@st.composite
def requests_of_groups(draw):
    machine = draw(machines())
    kinds = st.sampled_from([
        {}, {"cores": 1}, {"cores": 2}, {"threads": 1, "strategy": "compact"}, {"reserve": 1}, {"smt": "all"},
        {"strategy": "all"}, {"strategy": "cores"},
    ])  # fmt: skip
    options = draw(st.lists(kinds, min_size=1, max_size=4))
    numbers = [draw(st.integers(1, 3)) for _ in options]
    return machine, [
        Request(group=f"g{index}", ranks=ranks, **own)
        for index, (ranks, own) in enumerate(zip(numbers, options, strict=True))
    ]


@given(requests_of_groups())
def test_groups_never_overlap(case):
    machine, requests = case
    try:
        plan = make_plan(machine, requests)
    except PlanError:
        event("not possible")
        return
    event("possible")
    claimed = [union(p.cpuset | p.reserved for p in part.placements) for part in plan.groups]
    assert all(first.isdisjoint(second) for first, second in combinations(claimed, 2))
    assert plan.used == union(part.used for part in plan.groups) <= machine.allowed
    assert plan.idle.isdisjoint(plan.used | plan.reserved)
    assert [part.request.group for part in plan.groups] == [request.group for request in requests]
    sized = [part.used for part in plan.groups if part.request.cores]
    for first, second in combinations(sized, 2):
        assert machine.table.whole(first).isdisjoint(second)
    assert make_plan(machine, requests) == plan


@given(machines(), st.integers(2, 4), st.integers(1, 2), st.sampled_from([None, 1, 2]))
def test_the_order_of_equal_groups_does_not_matter(machine, number, ranks, cores):
    requests = [Request(group=f"g{index}", ranks=ranks, cores=cores) for index in range(number)]
    sizes = set()
    for order in permutations(requests):
        try:
            sizes.add(tuple(sorted(len(part.used) for part in make_plan(machine, order).groups)))
        except PlanError as error:
            sizes.add(type(error))
    assert len(sizes) == 1


def test_the_environment_of_a_rank_from_python_is_that_of_its_group():
    plan = make_plan(DUAL, [Request(group="a", cores=4, bind=Bind.THREAD), Request(group="b", ranks=2)])
    env = make_environment(plan, 2, {"OMPBIND_GROUP": "outer"}, run_id="x")
    names = ("OMPBIND_RANK", "RANK", "WORLD_SIZE", "OMPBIND_GROUP", "OMPBIND_GROUP_RANK", "OMPBIND_CPUS")
    assert [env[name] for name in names] == ["2", "1", "2", "b", "1", "10-15"]
    assert env["OMP_PLACES"] == "{10,11,12,13,14,15}"
    assert make_environment(plan, 0, {})["OMP_PLACES"] == "{0,1,2,3},{1},{2},{3}"
    assert "OMPBIND_GROUP" not in make_environment(make_plan(DUAL, Request()), 0, {"OMPBIND_GROUP": "outer"})
