"""What `ompbind inspect --watch` draws fits its screen, whatever there is to draw."""

import io

import pytest
from rich.console import Console

from ompbind.inspection.sampling import Sample, compare_samples
from ompbind.report.live_view import make_view
from ompbind.report.text import Screen
from tests.inspection.test_judge import cpus, process
from tests.inspection.test_rank_processes import OWN, look_at, rank


def draw(cpu_count, processes, threads, room):
    each = cpu_count // processes
    kin = [
        process(f"{each * i}-{each * (i + 1) - 1}*{threads}", pid=1000 * (i + 1), name="python3.11\x1b")
        for i in range(processes)
    ]
    return draw_inspection(look_at(*kin, around=""), cpu_count, room)


def draw_inspection(seen, cpu_count, room):
    now = Sample(
        at_s=2.0, inspection=seen, cpus=tuple((cpu, cpu / cpu_count, 2.0) for cpu in range(cpu_count))
    )
    before = now.replace(at_s=0.0, cpus=tuple((cpu, 0.0, 0.0) for cpu in range(cpu_count)))
    screen = io.StringIO()
    console = Console(file=screen, width=room.width, height=room.height, force_terminal=False)
    console.print(make_view(compare_samples(before, now), "head", room))
    return screen.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize(
    "room", [Screen(), Screen(width=40, height=12), Screen(width=200, height=60), Screen(draws=False)]
)
@pytest.mark.parametrize(
    ("cpu_count", "processes", "threads"), [(2, 1, 1), (8, 2, 40), (128, 64, 3), (1024, 4, 300)]
)
def test_views_fit(cpu_count, processes, threads, room):
    lines = draw(cpu_count, processes, threads, room)
    assert len(lines) <= room.height
    assert max(map(len, lines)) <= room.width
    assert room.draws or "█" not in "".join(lines)
    assert "\x1b" not in "".join(lines)


def test_a_narrow_screen_shows_numbers_and_verdicts_that_can_be_read():
    for lines in (draw(8, 4, 2, Screen(width=40, height=14)), draw(8, 4, 2, Screen(width=63))):
        titles, first, *_ = [line for line in lines if "rank" in line or "1000" in line]
        assert titles.split() == ["rank", "pid", "may", "run", "on", "use", "verdict"]
        assert first.split()[:5] == ["-", "1000", "0-1", "0%", "ok"]
        assert "moves/s" not in "".join(lines)
        below = lines[lines.index(next(line for line in lines if line.startswith("rank  thread"))) :]
        assert [line.split()[-1] for line in below[:2]] == ["use", "0%"]


def test_cpus_have_bars_and_what_does_not_fit_is_counted():
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


def test_verdicts_are_told_by_what_they_are_called():
    narrow = rank(1, "2*3", "libgomp.so.1", pid=13, OMP_PLACES="cores", OMP_PROC_BIND="true")
    lines = draw_inspection(look_at(*OWN, rank(0, "0-1*2", pid=12), narrow), 4, Screen())
    assert [line.rstrip().split("  ")[-1] for line in lines[2:5]] == ["verdict", "ok", "error: narrowed"]


def test_what_is_wrong_between_ranks_is_told():
    lines = draw_inspection(look_at(*OWN, rank(0, "0-2", pid=12), rank(1, "2-3", pid=13)), 4, Screen())
    assert "error: outside" in lines[3]
    assert lines[5].startswith("error: shared (")
    assert max(map(len, lines)) <= 80
