"""What other processes use of the CPUs of ranks: the time of CPUs without that of the ranks' processes."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.inspection.verdict import CpuUsage, OthersLoad, find_sharing, measure_others

CPUS = CpuSet.from_list


def usage(at_s, *cpus_s, **processes):
    """A reading: the times of CPUs from 0, and (own, reaped) seconds of processes p1, p2, …"""
    times = {int(name[1:]): pair for name, pair in processes.items()}
    return CpuUsage(at_s=at_s, cpus=dict(enumerate(cpus_s)), processes=times)


@pytest.mark.parametrize(
    ("before", "after", "used_s"),
    [
        (usage(0, 1, 1), usage(10, 9, 1), 8.0),  # no process of the rank has run
        (usage(0, 1, 1, p1=(2, 0)), usage(10, 9, 1, p1=(7, 0)), 3.0),
        (usage(0, 1, 1), usage(10, 9, 1, p1=(7, 0)), 1.0),  # it has started since
        (usage(0, 1, 1, p1=(2, 1)), usage(10, 9, 1, p1=(2, 6)), 3.0),  # it has waited for a child
        (usage(0, 1, 1, p1=(2, 1), p2=(3, 0)), usage(10, 9, 1, p1=(2, 6)), 6.0),  # whose 3 s were known
        (usage(0, 1, 1, p1=(2, 1), p2=(3, 0)), usage(10, 9, 1, p1=(2, 1)), 8.0),  # nobody has waited
        (usage(0, 1), usage(10, 9), None),  # CPU 1 was offline
    ],
)
def test_time_of_ranks_and_of_children_they_waited_for_is_not_of_others(before, after, used_s):
    found = measure_others(before, after, CPUS("0-1"))
    assert found == (OthersLoad(cpus=CPUS("0-1"), span_s=10, used_s=used_s) if used_s else OthersLoad())


@pytest.mark.parametrize(
    ("cpus", "used_s", "text"),
    [
        ("0-1", 12.2, "used 61 % of CPUs 0-1"),
        ("0", 1.0, "used 10 % of CPU 0"),
        ("0", 0.9, ""),
        ("0-63", 10.0, "used the time of 1.0 CPUs on CPUs 0-63"),  # one process slows all threads of a loop
        ("0-63", 4.9, ""),
        ("", 0.0, ""),
    ],
)
def test_others_are_mentioned_if_they_use_much(cpus, used_s, text):
    load = OthersLoad(cpus=CPUS(cpus), span_s=10.0, used_s=used_s)
    assert load.is_much == bool(text)
    assert not text or load.text == f"other processes {text}"


def test_ranks_that_share_cpus_are_one_group():
    groups = find_sharing([CPUS(text) for text in ("0-1", "2", "4-5", "2-4", "7")])
    assert [(str(cpus), members) for cpus, members in groups] == [
        ("0-1", (0,)),
        ("2-5", (1, 2, 3)),
        ("7", (4,)),
    ]
