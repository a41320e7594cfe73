"""Plans for a job that may use a number of CPUs: threads and ranks are limited, and nothing is bound."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError
from ompbind.machine.read import read_machine
from ompbind.masks.mask import parse_mask
from ompbind.planning.planner import find_possible_cpus, make_plan
from ompbind.planning.request import JobCpus, Request, Sharing
from tests.tables import rows

MACHINE = read_machine("synthetic:pack:2 core:4 pu:2")  # CPUs 0-15, the siblings of a core are adjacent
JOB = JobCpus(system="PBS", variable="NCPUS", count=4)
OPTIONS = {
    "alone": {}, "-t 6": {"threads": 6}, "-c 2": {"cores": 2}, "-c 8": {"cores": 8},
    "service": {"service_cores": 1}, "reserve": {"reserve_total": 1},
    "none": {"mask": parse_mask("none")}, "-m": {"mask": parse_mask("0-7")},
    "--avoid": {"sharing": Sharing.AVOID}, "--avoid -c 1": {"sharing": Sharing.AVOID, "cores": 1},
    "--share": {"sharing": Sharing.SHARE}, "-n auto": {"ranks": None},
}  # fmt: skip


def plan_for(option, ranks, allowed="0-15", job=JOB):
    machine = MACHINE.replace(allowed=CpuSet.from_list(allowed))
    return make_plan(machine, Request(**{"ranks": ranks, "job_cpus": job, **OPTIONS[option]}))


@pytest.mark.parametrize(("option", "ranks", "shown"), rows("""
    alone        | 1 | 0-15:4
    alone        | 3 | 0-15:1 0-15:1 0-15:1
    -t 6         | 2 | 0-15:6 0-15:6
    -c 2         | 1 | 0-15:2
    -c 8         | 1 | 0-15:4
    service      | 1 | 0-15:4
    reserve      | 1 | 0-15:4
    none         | 1 | 0-15:4
    -n auto      | 1 | 0-15:4
    --share      | 5 | 0-15:1 0-15:1 0-15:1 0-15:1 0-15:1
    -m           | 1 | 0-7:4
    --avoid      | 2 | 0,2:2 4,6:2
    --avoid -c 1 | 2 | 0:1 4:1
"""))  # fmt: skip
def test_ranks_share_the_number_of_cpus_of_the_job(option, ranks, shown):
    plan = plan_for(option, int(ranks))
    assert " ".join(f"{rank.cpuset}:{rank.threads}" for rank in plan.placements) == shown
    (note,) = [note for note in plan.notes if note.code == "job-cpus"]
    assert note.warning
    assert "4 CPUs that PBS allows (NCPUS)" in note.text
    unused = {"-c 8": "--cores", "service": "--service-cores", "reserve": "--reserve"}.get(option)
    assert f"; {unused} cannot be fulfilled" in note.text if unused else "fulfilled" not in note.text
    is_bound = option.startswith(("-m", "--avoid"))
    assert plan.request.is_unbound == (not is_bound)
    assert {bool(rank.places) for rank in plan.placements} == {is_bound}


@pytest.mark.parametrize(("allowed", "count", "limits"), [
    ("0-15", 16, False), ("0-15", 15, True), ("0-15", 8, True), ("0-7", 4, False), ("0-7", 3, True),
])  # fmt: skip
def test_a_number_limits_only_where_no_affinity_mask_does(allowed, count, limits):
    """Batch systems count hardware threads or cores, so a mask of as many cores is that of the job."""
    plan = plan_for("alone", 1, allowed, JOB.replace(count=count))
    assert any(note.code == "job-cpus" for note in plan.notes) == plan.request.is_unbound == limits


def test_more_ranks_than_cpus_and_strict_requests_are_errors_and_a_run_waits_for_all_cpus():
    with pytest.raises(PlanError, match="5 ranks do not fit on the 4 CPUs that PBS allows"):
        plan_for("alone", 5)
    with pytest.raises(PlanError, match="not bound"):
        make_plan(MACHINE, Request(job_cpus=JOB, strict=True))
    assert str(find_possible_cpus(MACHINE, Request(job_cpus=JOB))) == "0-15"
