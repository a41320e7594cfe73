"""What is expected of the threads of a rank, from the variables of its process."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.inspection.expectation import expect_variables, is_relevant
from ompbind.openmp.binding import Bind
from tests.inspection.test_judge import cpus

RANKS = [
    ({"OMP_PLACES": "{0,1,2,3}", "OMP_PROC_BIND": "true"}, Bind.RANK),
    ({"OMP_PLACES": "{0:4},{1},{2},{3}", "OMP_PROC_BIND": "close"}, Bind.THREAD),
    ({"OMP_PLACES": "{0,1,2,3},{2,3}", "OMP_PROC_BIND": "spread"}, Bind.CORE),
    ({"OMP_PLACES": "{0},{1},{2},{3}", "OMP_PROC_BIND": "close", "KMP_AFFINITY": "reset"}, Bind.EXACT),
    ({"OMP_PROC_BIND": "false"}, Bind.NONE),
    ({"OMP_PLACES": "{0},{1}", "OMP_PROC_BIND": "false"}, Bind.NONE),
]


@pytest.mark.parametrize(("env", "bind"), RANKS)
def test_the_mode_of_a_rank_follows_from_its_variables(env, bind):
    expected = expect_variables({"OMPBIND_RANK": "3", "OMPBIND_CPUS": "0-3", "OMPBIND_RUN_ID": "a", **env})
    assert (expected.rank, expected.cpus, expected.bind, expected.run_id) == (3, cpus("0-3"), bind, "a")


def test_the_places_of_a_list_for_kmp_are_single_cpus():
    env = {"KMP_AFFINITY": "reset,granularity=fine,explicit,proclist=[4,6]", "OMPBIND_CPUS": "4,6"}
    expected = expect_variables({**env, "OMPBIND_RANK": "0"})
    assert (expected.bind, expected.places) == (Bind.EXACT, (CpuSet([4]), CpuSet([6])))


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"OMPBIND_RANK": "0"},
        {"OMPBIND_RANK": "x", "OMPBIND_CPUS": "0"},
        {"OMPBIND_RANK": "0", "OMPBIND_CPUS": ""},
    ],
)
def test_nothing_is_expected_without_variables_of_ompbind(env):
    assert expect_variables(env) is None


@pytest.mark.parametrize(
    ("name", "relevant"),
    [
        ("OMP_PLACES", True),
        ("TF_NUM_THREADS", True),
        ("OMPBIND_RANK", True),
        ("LD_PRELOAD", True),
        ("COMPILER_OMP", False),
        ("PATH", False),
        ("", False),
    ],
)
def test_is_relevant(name, relevant):
    assert is_relevant(name) is relevant
