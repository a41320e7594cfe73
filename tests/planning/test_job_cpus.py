"""Plans for a job that may use a number of CPUs: threads and ranks are limited, and nothing is bound."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError
from ompbind.machine.read import read_machine
from ompbind.planning.planner import find_possible_cpus
from ompbind.planning.request import JobCpus, Request, Sharing
from tests.planning.test_planner import plan_on

MACHINE = read_machine("synthetic:pack:2 core:4 pu:2")  # CPUs 0-15, the siblings of a core are adjacent
JOB = JobCpus(system="PBS", variable="NCPUS", count=4)
AVOID, SHARE = {"sharing": Sharing.AVOID}, {"sharing": Sharing.SHARE}


def planned(allowed="0-15", **options):
    machine = MACHINE.replace(allowed=CpuSet.from_list(allowed))
    return plan_on(machine, **{"ranks": 1, "job_cpus": JOB, **options})


@pytest.mark.parametrize(("options", "shown", "unused"), [
    ({}, "0-15:4", ""), ({"ranks": "auto"}, "0-15:4", ""), ({"mask": "none"}, "0-15:4", ""),
    ({"ranks": 3}, "0-15:1 0-15:1 0-15:1", ""), ({"ranks": 2, "threads": 6}, "0-15:6 0-15:6", ""),
    ({"cores": 2}, "0-15:2", ""), ({"cores": 8}, "0-15:4", "--cores"),
    ({"service_cores": 1}, "0-15:4", "--service-cores"), ({"reserve_total": 1}, "0-15:4", "--reserve"),
    ({"ranks": 5, **SHARE}, "0-15:1 0-15:1 0-15:1 0-15:1 0-15:1", ""),
    # these are bound
    ({"mask": "0-7"}, "0-7:4", ""), ({"ranks": 2, **AVOID}, "0,2:2 4,6:2", ""),
    ({"ranks": 2, "cores": 1, **AVOID}, "0:1 4:1", ""),
])  # fmt: skip
def test_ranks_share_the_number_of_cpus_of_the_job(options, shown, unused):
    plan = planned(**options)
    assert " ".join(f"{rank.cpuset}:{rank.threads}" for rank in plan.placements) == shown
    (note,) = [note for note in plan.notes if note.code == "job-cpus"]
    assert note.warning
    assert "4 CPUs that PBS allows (NCPUS)" in note.text
    assert f"; {unused} cannot be fulfilled" in note.text if unused else "fulfilled" not in note.text
    is_bound = not shown.startswith("0-15")
    assert plan.request.is_unbound == (not is_bound)
    assert {bool(rank.places) for rank in plan.placements} == {is_bound}


@pytest.mark.parametrize(("allowed", "count", "limits"), [
    ("0-15", 16, False), ("0-15", 15, True), ("0-15", 8, True), ("0-7", 4, False), ("0-7", 3, True),
])  # fmt: skip
def test_a_number_limits_only_where_no_affinity_mask_does(allowed, count, limits):
    """Batch systems count hardware threads or cores, so a mask of as many cores is that of the job."""
    plan = planned(allowed, job_cpus=JOB.replace(count=count))
    assert any(note.code == "job-cpus" for note in plan.notes) == plan.request.is_unbound == limits


def test_more_ranks_than_cpus_and_strict_requests_are_errors_and_a_run_waits_for_all_cpus():
    with pytest.raises(PlanError, match="5 ranks do not fit on the 4 CPUs that PBS allows"):
        planned(ranks=5)
    with pytest.raises(PlanError, match="not bound"):
        planned(strict=True)
    assert str(find_possible_cpus(MACHINE, Request(job_cpus=JOB))) == "0-15"
