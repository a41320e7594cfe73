"""Views of `ompbind inspect --watch` fit the screen, and show what a user needs to judge a placement."""

import re

import pytest

from ompbind.inspection.samples import Sample, compare_samples
from ompbind.inspection.verdict import ThreadIssue
from ompbind.machine.sources.linux.cgroup import Throttling
from ompbind.machine.sources.linux.numa import MemorySize
from ompbind.procfs.parsers import CpuTimes
from ompbind.report.live_view import render_view
from ompbind.report.text import Screen, count_columns
from ompbind.text import Severity
from tests.inspection.test_judge import process
from tests.inspection.test_rank_processes import OWN, inspect, rank

SCREENS = [
    *(Screen(width=width, height=height) for width, height in ((60, 20), (80, 24), (40, 12), (200, 60))),
    Screen(has_box_characters=False),
    Screen(styled=True),
]


def draw(cpu_count, processes, threads, screen, name="python3.11\x1b"):
    each = cpu_count // processes
    members = [
        process(f"{each * i}-{each * (i + 1) - 1}*{threads}", pid=1000 * (i + 1), name=name)
        for i in range(processes)
    ]
    return draw_inspection(inspect(*members, parent_mask=""), cpu_count, screen)


def draw_inspection(inspection, cpu_count, screen, **changes):
    """Render what happened in two seconds in which CPU k was busy for k / cpu_count of the time."""
    idle = {cpu: CpuTimes(processes=0, busy=0, stolen=0, total=0) for cpu in range(cpu_count)}
    busy = {cpu: times.replace(busy=200 * cpu // cpu_count, total=200) for cpu, times in idle.items()}
    now = Sample(at_s=2.0, inspection=inspection, cpus=busy).replace(**changes)
    throttling = Throttling(cgroup="a", periods=100, throttled_periods=40)
    before = now.replace(at_s=0.0, cpus=idle, throttlings=(throttling,))
    return render_view(compare_samples(before, now), "head", screen)


@pytest.mark.parametrize("screen", SCREENS)
def test_views_fit(screen):
    for cpu_count, processes, threads in ((2, 2, 3), (8, 2, 40), (128, 64, 3), (1024, 4, 300)):
        for name in ("python3.11\x1b", "世界世界"):
            lines = draw(cpu_count, processes, threads, screen, name=name)
            shown = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines]
            assert len(lines) <= screen.height
            assert max(map(count_columns, shown)) <= screen.width
            assert screen.has_box_characters or "".join(shown).replace("世界", "").isascii()
            assert "\x1b" not in "".join(shown)
            assert screen.styled or list(lines) == shown


def test_the_cpus_of_each_rank_are_drawn():
    lines = draw(4, 2, 2, Screen())
    shares = [part.split()[::2] for part in lines[2].split("CPU")[1:]]
    assert shares == [["0", "0%"], ["1", "25%"], ["2", "50%"], ["3", "75%"]]
    assert ("·▂" in lines[4], "▄▆" in lines[5]) == (True, True)
    assert "46" in draw(4, 2, 2, Screen(has_box_characters=False))[5]
    assert any(re.search(r"\.\.\. +\d+ more", line) for line in draw(64, 32, 3, Screen()))


def test_the_used_memory_of_nodes_has_a_label():
    nodes = tuple(MemorySize(node=node, total=100, free=86 - node) for node in range(3))
    lines = draw_inspection(RANKS, 4, Screen(), nodes=nodes)
    assert lines[3] == "memory of node 0 █····  14%  memory of node 1 █····  15%"


def test_verdicts_and_what_differs_from_the_plan_are_shown():
    narrow = rank(1, "2*3", "libgomp.so.1", pid=13, OMP_PLACES="cores", OMP_PROC_BIND="true")
    again = rank(0, "0-1*2", pid=12, OMPBIND_ATTEMPT="3")
    lines = draw_inspection(inspect(*OWN, again, narrow), 4, Screen())
    assert [line.split("  ")[-1] for line in lines[3:6]] == ["verdict", "ok, start 3", "error: narrowed"]
    lines = draw_inspection(inspect(*OWN, rank(1, "2*3", pid=13)), 4, Screen())
    assert "CPU 3" in lines[2]  # idle, though planned: to look at
    lines = draw_inspection(inspect(*OWN, rank(0, "0-2", pid=12), rank(1, "2-3", pid=13)), 4, Screen())
    assert "error: outside" in lines[4]
    assert lines[6].startswith("error: shared (")
    issue = ThreadIssue(code="shared", severity=Severity.ERROR, threads=1, text="word " * 99)
    lines = draw_inspection(RANKS.replace(shared_issues=(issue,)), 4, Screen(height=24))
    assert sum("word" in line for line in lines) == 4, "a sixth of the screen"


RANKS = inspect(*OWN, rank(0, "0-1", pid=12), rank(1, "2-3", pid=13))


def test_ranks_without_processes_and_several_runs():
    lines = draw_inspection(RANKS, 4, Screen(), absent_ranks=(("job", 2),))
    assert lines[6].split() == ["2", "not", "running"]
    assert lines[0] == "run job  head"
    lines = draw_inspection(RANKS, 4, Screen(width=160), absent_ranks=(("other", 0),))
    assert lines[0] == "2 runs  head"
    assert [line.split()[0] for line in lines[3:7]] == ["run", "job", "job", "other"]
    assert "no processes" in draw_inspection(inspect(parent_mask=""), 4, Screen())[1]
