"""Pictures of plans: every core once, with its rank as a symbol and as a colour, within the screen."""

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.errors import PlanError
from ompbind.machine.model import CoreKind, Level
from ompbind.masks.parse import parse_mask
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.report.diagram.plan_overlay import KEYS
from ompbind.report.diagram.svg import render_plan_svg
from ompbind.report.diagram.terminal import LINES, render_picture
from ompbind.report.text import Screen
from tests.machines import Shape, make_machine
from tests.planning.test_promises import shapes
from tests.report.diagram.test_svg import ElementTree, check_geometry, groups, legend, subsets, words

PLAIN = Screen()


def plan(machine, mask=None, **options):
    return make_plan(machine, Request(mask=parse_mask(mask) if mask else None, **options))


def parts(picture):
    """The heading, the boxes, the legend and the notes of a picture, each without colours."""
    return re.sub("\033[^m]*m", "", picture).split("\n\n")


DUAL = make_machine(Shape(packages=2, cores=4, smt=2))
KINDS = (
    CoreKind(name="performance", cpus=CpuSet([0, 1, 2, 3]), strength=1024, source="type"),
    CoreKind(name="efficiency", cpus=CpuSet([4, 5, 6, 7]), strength=600, source="type"),
)
HYBRID = make_machine(Shape(cores=8), kinds=KINDS, isolated=CpuSet([7]), allowed=CpuSet([*range(6), 7]))

DRAWN = [
    (DUAL, {"ranks": 2, "reserve": 1}, """\
2 ranks, balanced, on test:
test, 16 CPUs, 8 cores, 2 packages, 2 NUMA nodes

┌ package 0 ────────────┐ ┌ package 1 ────────────┐
│ NUMA node 0 (1.0 GiB) │ │ NUMA node 1 (1.0 GiB) │
│ L3 0                  │ │ L3 1                  │
│ 0 0 0 R               │ │ 1 1 1 R               │
└───────────────────────┘ └───────────────────────┘

0  rank 0: CPUs 0-2, 3 threads
1  rank 1: CPUs 4-6, 3 threads
R  reserved

note: 6 idle hardware threads on cores of ranks"""),
    (HYBRID, {"ranks": 2, "mask": "0-1|3-4"}, """\
2 ranks, mask, on test:
test, 8 CPUs, 8 cores, 1 package, 1 NUMA node

┌ package 0 · NUMA node 0 (1.0 GiB) · L3 0 ─────────────┐
│ performance core  0 0 . 1   efficiency core   1 . - * │
└───────────────────────────────────────────────────────┘"""),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "options", "expected"), DRAWN)
def test_pictures(machine, options, expected):
    assert f"{render_picture(plan(machine, **options), PLAIN)}\n".startswith(f"{expected}\n")


def symbol_of(made, cpus):
    """The symbol of some CPUs of one core, made in another way than the program does."""
    ranks = [rank.rank for rank in made.placements if not rank.cpuset.isdisjoint(cpus)]
    if ranks:
        cuts = [0, *(i for i in range(1, len(ranks)) if ranks[i] != ranks[i - 1] + 1), len(ranks)]
        runs = [ranks[start:stop] for start, stop in pairwise(cuts)]
        return "/".join(f"{r[0]}-{r[-1]}" if len(r) > 2 else "/".join(map(str, r)) for r in runs)
    if not cpus.isdisjoint(made.reserved):
        return "R"
    free = made.machine.allowed & cpus
    return "-" if not free else "*" if free <= made.machine.excluded_by_default else "."


@st.composite
def plans(draw):
    """Plans of the planner, on machines with CPUs that are not allowed, or excluded by default."""
    machine = make_machine(draw(shapes))
    count = len(machine.online)
    machine = machine.replace(
        allowed=machine.online - draw(st.just(EMPTY) | subsets(count)),
        isolated=draw(st.just(EMPTY) | subsets(count)),
    )
    assume(machine.allowed)
    strategies = ["balanced", "compact", "spread", "nodes", "cores", "all"]
    try:
        return plan(
            machine, ranks=draw(st.integers(1, 20)), strategy=draw(st.sampled_from(strategies)),
            smt=draw(st.sampled_from(["auto", "all", 2])), threads=draw(st.none() | st.integers(1, 4)),
            reserve=draw(st.integers(0, 1)), sharing=draw(st.sampled_from([Sharing.WARN, Sharing.SHARE])),
        )  # fmt: skip
    except PlanError:
        assume(False)


TITLE = re.compile(r"(?:part of )?(?:package|NUMA node|L3) \d+(?: = \w+:\d+)?(?: \([^)]*\))?")


def cells(boxes):
    """The cells of a picture; a counted cell is repeated."""
    for symbol in re.sub(r"[┌─┐│└┘·]|" + TITLE.pattern, " ", boxes).split():
        text, _, times = symbol.partition("×")
        yield from [text] * int(times or 1)


@given(plans(), st.integers(40, 200))
def test_every_core_is_shown_once_with_its_rank(made, width):
    picture = render_picture(made, Screen(width=width))
    cores = [core.cpus for core in made.machine.at(Level.CORE)]
    assert Counter(cells(parts(picture)[1])) == Counter(symbol_of(made, core) for core in cores)
    assert max(map(len, picture.split("\n"))) <= width
    styled = render_picture(made, Screen(width=width, styled=True))
    assert re.sub("\033[^m]*m", "", styled) == picture
    plain = render_picture(made, Screen(width=width, has_box_characters=False))
    assert plain.isascii()
    assert max(map(len, plain.split("\n"))) <= width


def test_large_pictures_count_cores_and_stay_short():
    made = plan(make_machine(Shape(packages=8, nodes=4, l3s=4, cores=16, smt=2)), ranks=64)
    _, boxes, keys, *_ = parts(render_picture(made, PLAIN))
    assert len(boxes.split("\n")) <= LINES
    cores = made.machine.at(Level.CORE)
    assert Counter(cells(boxes)) == Counter(symbol_of(made, core.cpus) for core in cores)
    assert "×2" in keys


def parse(made):
    """The picture of a plan for browsers, checked for what holds for all of them."""
    root = ElementTree.fromstring(render_plan_svg(made))
    size = (0, 0, int(root.get("width")), int(root.get("height")))
    check_geometry(groups(root, "machine")[0], size)
    return root


@given(plans())
def test_every_cpu_of_a_browser_picture_shows_its_rank(made):
    found = dict(words(group).split(" · ") for group in groups(parse(made), "cpu"))
    assert found == {str(cpu): symbol_of(made, CpuSet([cpu])) for cpu in made.machine.online}


def test_legends_have_all_symbols_and_no_others():
    keys = legend(parse(plan(HYBRID, ranks=2, mask="0-1|3-4")))
    assert keys[4:] == [". = idle", "* = excluded by default (isolated)", "- = not allowed"]
    keys = legend(parse(plan(DUAL, ranks=2, strategy="all", smt="all")))
    assert keys[3:] == ["0/1 = shared by these ranks"]
    picture = render_picture(plan(DUAL, ranks=2, cores=2, service_cores=1), PLAIN)
    assert "0s  for service threads of this rank" in picture
    other = LiveRun(run_id="other", pid=1, uid=1, started=1, ranks=(), claimed=CpuSet([0]))
    picture = render_picture(make_plan(DUAL, Request(sharing=Sharing.AVOID), [other]), PLAIN)
    assert "o  used by other runs" in picture
    made = plan(make_machine(Shape(cores=KEYS + 1)), ranks=KEYS + 1)
    assert len(legend(parse(made))) == 8
    assert parts(render_picture(made, PLAIN))[2] == "0 to 16  ranks; --format table lists their CPUs"
