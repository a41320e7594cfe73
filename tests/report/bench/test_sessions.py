"""Sessions side by side: medians, the change of each candidate in words, and what the ratio does not show."""

import re

import pytest

from ompbind.bench.compare_sessions import CandidateChange, Difference, SessionsComparison
from ompbind.report.bench.sessions import render_sessions
from ompbind.report.text import PIPE, Screen
from tests.bench.sessions import HARDWARE, TWO_METRICS, make_session


def make_change(candidate, medians, *, runs=None, ratio=None, interval=None):
    runs = runs or (12,) * len(medians)
    return CandidateChange(candidate=candidate, medians=medians, runs=runs, ratio=ratio, interval=interval)


CHANGES = [
    make_change("unbound", (1.4, 1.4), ratio=1.0, interval=(0.98, 1.02)),
    make_change("smt=2", (1.4, 1.12), ratio=1.25, interval=(1.2, 1.3)),
    make_change("default", (1.2, 1.5), ratio=0.8, interval=(0.7, 0.9)),
    make_change("bind=thread", (1.2, None), runs=(12, 0)),
    make_change("bind=core", (None, 1.25), runs=(0, 12)),
    make_change("bind=exact", (1.3, 1.25), runs=(2, 2), ratio=1.04),
]

AT_80 = """\
session 1: 2023-11-14 22:13 UTC, node1, EPYC 9654, 13 runs, python serve.py
  --name 'two words'
session 2: 2023-11-15 22:13 UTC, node2, EPYC 9654, 13 runs, python serve.py
  --name 'two words'

candidate     time 1   time 2  ratio  interval        result
unbound      1.400 s  1.400 s  1.000  0.980 to 1.020  no difference known
smt=2        1.400 s  1.120 s  1.25   1.20 to 1.30    faster
default      1.200 s  1.500 s  0.80   0.70 to 0.90    slower
bind=thread  1.200 s        -  -                      no valid run
bind=core          -  1.250 s  -                      new
bind=exact   1.300 s  1.250 s  1.040                  too few runs

ratio: session 2 compared with session 1; above 1, session 2 is faster
differs: allowed CPUs: 0-7, now 0-3
note: the sessions ran at different times; the ratio also contains what has
  changed on the machine between them, such as other load or the temperature"""


def render(sessions, changes=(), differences=(), screen=PIPE):
    made = tuple(Difference(about=about, before=before, now=now) for about, before, now in differences)
    comparison = SessionsComparison(sessions=tuple(sessions), changes=tuple(changes), differences=made)
    return render_sessions(comparison, screen)


def make_two(**fields):
    first = make_session({"unbound": 1.0}, **fields)
    hardware = HARDWARE.replace(hostname="node2")
    return [first, first.replace(started=first.started + 86400, hardware=hardware)]


def test_the_comparison_at_80_columns():
    assert render(make_two(), CHANGES, [("allowed CPUs", "0-7", "0-3")], Screen(width=80)) == AT_80


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("number", [1, 2, 3, 9])
def test_every_width_fits(width, number):
    changes = [
        make_change(
            "strategy=spread, smt=2", (123.4,) * number, runs=(9,) * number, ratio=1.0, interval=(0.9, 1.1)
        )
    ]
    text = render(make_two()[:1] * number, changes, [], Screen(width=width))
    assert max(map(len, text.splitlines())) <= width
    assert f"time {number} " in text


def test_all_sessions_are_shown_if_they_fit():
    changes = [make_change("unbound", (1.0, 2.0, 3.0), runs=(9, 9, 9))]
    sessions = make_two()[:1] * 3
    assert "time 2" in render(sessions, changes, [], Screen(width=160))
    assert "time 2" not in render(sessions, changes, [], Screen(width=80))


def test_metrics_are_better_or_worse():
    text = render(make_two(metrics=TWO_METRICS[:1]), CHANGES, [])
    assert re.search(r"smt=2 .* better", text)
    assert re.search(r"default .* worse", text)
    assert "session 2 is better" in text


@pytest.mark.parametrize("started", [1e300, -1e300, float("nan")])
def test_a_session_with_an_absurd_time(started):
    session = make_two()[0].replace(started=started)
    assert render([session], [], []).startswith("session 1: node1, EPYC 9654, 13 runs")


def test_without_box_characters_all_is_ascii():
    sessions = make_two(command=("größe",))
    assert render(sessions, CHANGES, [], Screen(has_box_characters=False)).isascii()
