"""Views of `ompbind inspect --watch` fit the screen."""

import io

import pytest
from rich.console import Console

from ompbind.inspection.compare_samples import Sample, compare_samples
from ompbind.report.live_view import make_view
from ompbind.report.text import Screen
from tests.inspection.test_judge import cpus, process
from tests.inspection.test_rank_processes import OWN, inspect, rank


def draw(cpu_count, processes, threads, screen):
    each = cpu_count // processes
    members = [
        process(f"{each * i}-{each * (i + 1) - 1}*{threads}", pid=1000 * (i + 1), name="python3.11\x1b")
        for i in range(processes)
    ]
    return draw_inspection(inspect(*members, parent_mask=""), cpu_count, screen)


def draw_inspection(inspection, cpu_count, screen):
    now = Sample(
        at_s=2.0, inspection=inspection, cpus=tuple((cpu, cpu / cpu_count, 2.0) for cpu in range(cpu_count))
    )
    before = now.replace(at_s=0.0, cpus=tuple((cpu, 0.0, 0.0) for cpu in range(cpu_count)))
    output = io.StringIO()
    console = Console(file=output, width=screen.width, height=screen.height, force_terminal=False)
    console.print(make_view(compare_samples(before, now), "head", screen))
    return output.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize(
    "screen", [Screen(), Screen(width=40, height=12), Screen(width=200, height=60), Screen(draws=False)]
)
@pytest.mark.parametrize(
    ("cpu_count", "processes", "threads"), [(2, 1, 1), (8, 2, 40), (128, 64, 3), (1024, 4, 300)]
)
def test_views_fit(cpu_count, processes, threads, screen):
    lines = draw(cpu_count, processes, threads, screen)
    assert len(lines) <= screen.height
    assert max(map(len, lines)) <= screen.width
    assert screen.draws or "█" not in "".join(lines)
    assert "\x1b" not in "".join(lines)


def test_a_narrow_screen_shows_readable_numbers_and_verdicts():
    for lines in (draw(8, 4, 2, Screen(width=40, height=14)), draw(8, 4, 2, Screen(width=63))):
        titles, first, *_ = [line for line in lines if "rank" in line or "1000" in line]
        assert titles.split() == ["rank", "pid", "mask", "%CPU", "verdict"]
        assert first.split()[:5] == ["-", "1000", "0-1", "0%", "ok"]
        assert "migrations/s" not in "".join(lines)
        below = lines[lines.index(next(line for line in lines if line.startswith("rank  thread"))) :]
        assert [line.split()[-1] for line in below[:2]] == ["%CPU", "0%"]


def test_cpus_have_bars_and_omitted_groups_are_counted():
    lines = draw(4, 2, 2, Screen())
    assert lines[1].split("CPU")[1:] == [
        " 0   ·····   0%  ",
        " 1   █····  12%  ",
        " 2   █····  25%  ",
        " 3   ██···  38%",
    ]
    many = draw(64, 32, 3, Screen())
    assert any("more" in line and "..." in line for line in many)
    assert str(cpus("0-1")) in "".join(many)


def test_verdicts_are_shown_by_their_codes():
    narrow = rank(1, "2*3", "libgomp.so.1", pid=13, OMP_PLACES="cores", OMP_PROC_BIND="true")
    lines = draw_inspection(inspect(*OWN, rank(0, "0-1*2", pid=12), narrow), 4, Screen())
    assert [line.rstrip().split("  ")[-1] for line in lines[2:5]] == ["verdict", "ok", "error: narrowed"]


def test_shared_issues_are_shown():
    lines = draw_inspection(inspect(*OWN, rank(0, "0-2", pid=12), rank(1, "2-3", pid=13)), 4, Screen())
    assert "error: outside" in lines[3]
    assert lines[5].startswith("error: shared (")
    assert max(map(len, lines)) <= 80
