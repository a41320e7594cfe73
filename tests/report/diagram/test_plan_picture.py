"""Pictures of plans: every core once, with its rank as a symbol and as a colour, within the screen."""

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import PlanError
from ompbind.machine.model import CoreKind, Level, Machine, Node, make_domains
from ompbind.masks.parse import parse_mask
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.plan import Note, Placement, Plan
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.report.diagram.plan_overlay import COLOURS, KEYS, make_overlay
from ompbind.report.diagram.svg import render_plan_svg
from ompbind.report.diagram.terminal import LINES, render_picture
from ompbind.report.text import Screen
from tests.machines import Shape, make_machine
from tests.planning.test_promises import shapes
from tests.report.diagram.test_svg import (
    ElementTree,
    check_geometry,
    groups,
    legend,
    machines,
    subsets,
    tip,
    words,
)

PLAIN = Screen()
ASCII = Screen(draws=False)


def plan(machine, mask=None, **options):
    return make_plan(machine, Request(mask=parse_mask(mask) if mask else None, **options))


def parts(picture):
    """The heading, the boxes, the legend and the notes of a picture, each without colours."""
    return re.sub("\033[^m]*m", "", picture).split("\n\n")


DUAL = make_machine(Shape(packages=2, cores=4, smt=2))
SNC = make_machine(Shape(packages=2, nodes=2, l3s=2, cores=3))
POWER = make_machine(Shape(packages=1, cores=4, smt=8, numbering="adjacent"))
KINDS = (
    CoreKind(name="performance", cpus=CpuSet([0, 1, 2, 3]), strength=1024, source="type"),
    CoreKind(name="efficiency", cpus=CpuSet([4, 5, 6, 7]), strength=600, source="type"),
)
HYBRID = make_machine(Shape(cores=8), kinds=KINDS, isolated=CpuSet([7]), allowed=CpuSet([*range(6), 7]))
BARE = Node(number=2, cpus=EMPTY, memory_bytes=64 << 30, nearest=(1,))
MEMORY = make_machine(Shape(packages=2)).replace(
    nodes=(*make_machine(Shape(packages=2)).nodes, BARE, BARE.replace(number=3, nearest=(0, 1)))
)

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
    (SNC, {"ranks": 12}, """\
12 ranks, balanced, on test:
test, 24 CPUs, 24 cores, 2 packages, 4 NUMA nodes

┌ package 0 ──────────────────────────────────────────────────────────────┐
│ ┌ NUMA node 0 (1.0 GiB) ──────────┐ ┌ NUMA node 1 (1.0 GiB) ──────────┐ │
│ │ L3 0   0  0  1   L3 1   1  2  2 │ │ L3 2   3  3  4   L3 3   4  5  5 │ │
│ └─────────────────────────────────┘ └─────────────────────────────────┘ │
└─────────────────────────────────────────────────────────────────────────┘
┌ package 1 ──────────────────────────────────────────────────────────────┐
│ ┌ NUMA node 2 (1.0 GiB) ──────────┐ ┌ NUMA node 3 (1.0 GiB) ──────────┐ │
│ │ L3 4   6  6  7   L3 5   7  8  8 │ │ L3 6   9  9 10   L3 7  10 11 11 │ │
│ └─────────────────────────────────┘ └─────────────────────────────────┘ │
└─────────────────────────────────────────────────────────────────────────┘
"""),
    (POWER, {"ranks": 9}, """\
9 ranks, balanced, on test:
test, 32 CPUs, 4 cores, 1 package, 1 NUMA node

┌ package 0 · NUMA node 0 (1.0 GiB) · L3 0 ┐
│ 0-2 3/4 5/6 7/8                          │
└──────────────────────────────────────────┘
"""),
    (HYBRID, {"ranks": 2, "mask": "0-1|3-4"}, """\
2 ranks, mask, on test:
test, 8 CPUs, 8 cores, 1 package, 1 NUMA node

┌ package 0 · NUMA node 0 (1.0 GiB) · L3 0 ─────────────┐
│ performance core  0 0 . 1   efficiency core   1 . - * │
└───────────────────────────────────────────────────────┘

0  rank 0: CPUs 0-1, 2 threads
1  rank 1: CPUs 3-4, 2 threads
.  idle
*  excluded by default (isolated)
-  not allowed"""),
    (MEMORY, {"ranks": 1}, """\
1 rank, balanced, on test:
test, 8 CPUs, 8 cores, 2 packages, 4 NUMA nodes

┌ package 0 · NUMA node 0 (1.0 GiB) · L3 0 ────────┐
│ 0 0 0 0                                          │
└──────────────────────────────────────────────────┘
┌ package 1 · NUMA node 1 (1.0 GiB) · L3 1 ────────┐
│ 0 0 0 0                                          │
└──────────────────────────────────────────────────┘
NUMA node 2 (64.0 GiB) · no CPUs · nearest to node 1
NUMA node 3 (64.0 GiB) · no CPUs · nearest to nodes 0-1

0  rank 0: CPUs 0-7, 8 threads"""),
]  # fmt: skip
TYPED = [
    (DUAL, {"ranks": 2, "reserve": 1}, """\
+ package 0 ------------+ + package 1 ------------+
| NUMA node 0 (1.0 GiB) | | NUMA node 1 (1.0 GiB) |
| L3 0                  | | L3 1                  |
| 0 0 0 R               | | 1 1 1 R               |
+-----------------------+ +-----------------------+"""),
    (POWER, {"ranks": 9}, """\
+ package 0, NUMA node 0 (1.0 GiB), L3 0 +
| 0-2 3/4 5/6 7/8                        |
+----------------------------------------+"""),
    (MEMORY, {"ranks": 8}, """\
+ package 0, NUMA node 0 (1.0 GiB), L3 0 --------+
| 0 1 2 3                                        |
+------------------------------------------------+
+ package 1, NUMA node 1 (1.0 GiB), L3 1 --------+
| 4 5 6 7                                        |
+------------------------------------------------+
NUMA node 2 (64.0 GiB), no CPUs, nearest to node 1
NUMA node 3 (64.0 GiB), no CPUs, nearest to nodes 0-1"""),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "options", "expected"), DRAWN)
def test_pictures(machine, options, expected):
    assert f"{render_picture(plan(machine, **options), PLAIN)}\n".startswith(f"{expected}\n")


@pytest.mark.parametrize(("machine", "options", "expected"), TYPED)
def test_pictures_in_ascii(machine, options, expected):
    picture = render_picture(plan(machine, **options), ASCII)
    assert parts(picture)[1] == expected
    assert picture.isascii()


def test_other_characters_than_ascii_are_replaced():
    assert render_picture(plan(DUAL.replace(source="caf\xe9")), ASCII).startswith(
        "1 rank, balanced, on caf?:"
    )


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
    options = {
        "ranks": draw(st.integers(1, 20)),
        "strategy": draw(st.sampled_from(["balanced", "compact", "spread", "nodes", "cores", "all"])),
        "smt": draw(st.sampled_from(["auto", "all", 2])),
        "threads": draw(st.none() | st.integers(1, 4)),
        "reserve": draw(st.integers(0, 1)),
        "sharing": draw(st.sampled_from([Sharing.WARN, Sharing.SHARE])),
    }
    try:
        return plan(machine, **options)
    except PlanError:
        assume(False)


TITLE = re.compile(r"(?:part of )?(?:package|NUMA node|L3) \d+(?: = \w+:\d+)?(?: \([^)]*\))?")


def cells(boxes):
    """The cells of a picture; a counted cell is repeated."""
    for symbol in re.sub(r"[┌─┐│└┘·]|" + TITLE.pattern, " ", boxes).split():
        text, _, times = symbol.partition("×")
        yield from [text] * int(times or 1)


def rows(boxes):
    """The cells of every L3 with a title of its own, by its number; further lines of it are below."""
    found, starts = {}, []
    for line in boxes.split("\n"):
        titles = [title for title in TITLE.finditer(line) if title[0].startswith("L3") and "·" not in line]
        if titles:
            starts = [(title.start(), int(title[0].split()[1])) for title in titles]
        else:  # a frame below ends its rows, but not the rows of a taller box beside it
            starts = [start for start in starts if not line[start[0] :].startswith("─")]
        for (start, number), (end, _) in pairwise([*starts, (len(line), 0)]):
            found.setdefault(number, []).extend(cells(line[start:end].split("│")[0]))
    return found


@given(plans(), st.integers(40, 200))
def test_every_core_is_shown_once_with_its_rank(made, width):
    boxes = parts(render_picture(made, Screen(width=width)))[1]
    cores = [core.cpus for core in made.machine.at(Level.CORE)]
    assert Counter(cells(boxes)) == Counter(symbol_of(made, core) for core in cores)
    for number, shown in rows(boxes).items():
        inside = made.machine.at(Level.L3)[number].cpus
        assert shown == [symbol_of(made, core) for core in cores if core <= inside]


def test_rows_are_found():
    assert rows(parts(render_picture(plan(SNC, ranks=12), PLAIN))[1])[7] == ["10", "11", "11"]
    narrow = make_machine(Shape(l3s=2, cores=30))
    made = render_picture(plan(narrow, ranks=30), Screen(width=40))
    assert rows(parts(made)[1])[1] == [str(rank) for rank in range(15, 30) for _ in range(2)]


@pytest.mark.parametrize("width", range(40, 100))
def test_rows_end_within_their_box(width):
    made = plan(make_machine(Shape(packages=2, l3s=2, cores=30)), ranks=30)
    assert max(map(len, render_picture(made, Screen(width=width)).split("\n"))) <= width


DEEP = """\
┌ drawer 0 ───────────────────────────┐
│ ┌ book 0 ─────────────────────────┐ │
│ │ ┌ package 0 ──────────────────┐ │ │
│ │ │ ┌ NUMA node 0 ────────────┐ │ │ │
│ │ │ │ die 0                   │ │ │ │
│ │ │ │ L3 0                    │ │ │ │
│ │ │ │ L2 0  0-3/5 0-3/5 0-3/5 │ │ │ │
│ │ │ │       0-3/5 0-2/4       │ │ │ │
│ │ │ │ 0-2/4                   │ │ │ │
│ │ │ │ 0-2/4                   │ │ │ │
│ │ │ │ 0-2/4                   │ │ │ │
│ │ │ └─────────────────────────┘ │ │ │
│ │ │ ┌ NUMA node 1 ────────────┐ │ │ │
│ │ │ │ 0-2/4                   │ │ │ │
│ │ │ └─────────────────────────┘ │ │ │
│ │ └─────────────────────────────┘ │ │
│ │ ┌ package 1 ──────────────────┐ │ │
│ │ │ 0-2/4                       │ │ │
│ │ └─────────────────────────────┘ │ │
│ └─────────────────────────────────┘ │
│ ┌ book 1 ─────────────────────────┐ │
│ │ 0-2/4                           │ │
│ └─────────────────────────────────┘ │
└─────────────────────────────────────┘
┌ drawer 1 ───────────────────────────┐
│ 0-2/4                               │
└─────────────────────────────────────┘"""


def test_a_title_is_above_its_content_if_no_frame_fits():
    online = CpuSet(range(12))
    halves = {
        level: [(None, CpuSet(range(11 - i))), (None, CpuSet([11 - i]))]
        for i, level in enumerate(
            (Level.DRAWER, Level.BOOK, Level.PACKAGE, Level.NODE, Level.DIE, Level.L3, Level.L2)
        )
    }
    halves[Level.NODE] = [(i, cpus) for i, (_, cpus) in enumerate(halves[Level.NODE])]
    domains = make_domains(online, halves)
    machine = Machine(source="deep", arch="any", online=online, allowed=online, domains=domains)
    made = plan(machine, ranks=6, mask="all|all|all|0-3|4-11|0-3", sharing=Sharing.SHARE)
    assert parts(render_picture(made, Screen(width=40)))[1] == DEEP


@st.composite
def arbitrary_plans(draw):
    """Arbitrary plans, on machines that do not exist."""
    machine = draw(machines())
    owners = draw(st.lists(subsets(len(machine.online)).filter(bool), min_size=1, max_size=40))
    return Plan(
        machine=machine,
        request=Request(),
        placements=tuple(
            Placement(rank=rank, cpus=tuple(cpus), places=(), threads=1) for rank, cpus in enumerate(owners)
        ),
        reserved=draw(subsets(len(machine.online))) - union(owners),
        notes=(Note(code="any", text=draw(st.text(max_size=200)), warning=True),),
    )


@given(arbitrary_plans(), st.integers(40, 120))
def test_any_picture_fits_its_screen(made, width):
    for screen in (Screen(width=width), Screen(width=width, draws=False)):
        lines = render_picture(made, screen).split("\n")
        assert max(map(len, lines)) <= width
        assert not [line for line in lines if line != line.rstrip()]
    styled = render_picture(made, Screen(width=width, styled=True))
    assert re.sub("\033[^m]*m", "", styled) == render_picture(made, Screen(width=width))


def parse(made):
    """The picture of a plan for browsers, checked for what holds for all of them."""
    root = ElementTree.fromstring(render_plan_svg(made))
    size = (0, 0, int(root.get("width")), int(root.get("height")))
    check_geometry(groups(root, "machine")[0], size)
    return root


def annotations(root):
    """The symbol below the number of every CPU in a picture, and its marks."""
    pairs = [(words(group).split(" · "), group.get("class").split()[1:]) for group in groups(root, "cpu")]
    found = {int(number): (symbol, marks) for (number, symbol), marks in pairs}
    assert len(found) == len(pairs)
    return found


@given(plans())
def test_every_cpu_of_a_browser_picture_shows_its_rank(made):
    found = annotations(parse(made))
    assert CpuSet(found) == made.machine.online
    for cpu, (symbol, marks) in found.items():
        assert symbol == symbol_of(made, CpuSet([cpu]))
        ranks = [rank.rank for rank in made.placements if cpu in rank.cpus]
        other = {"R": "reserved", ".": "idle", "*": "apart", "-": "not-allowed"}
        mark = "shared" if len(ranks) > 1 else f"rank-{ranks[0] % COLOURS}" if ranks else other[symbol]
        assert mark in marks


@given(arbitrary_plans())
def test_any_plan_has_a_browser_picture(made):
    root = parse(made)
    assert CpuSet(annotations(root)) == made.machine.online
    assert render_plan_svg(made) == render_plan_svg(made)


def test_a_browser_picture_has_a_title_tooltips_and_a_legend():
    root = parse(plan(DUAL, ranks=2, reserve=1))
    assert tip(root) == "2 ranks, balanced, on test: test, 16 CPUs, 8 cores, 2 packages, 2 NUMA nodes"
    assert [tip(group) for group in groups(root, "core")][:4] == [
        *(f"core {i}: rank 0: CPUs 0-2, 3 threads" for i in range(3)),
        "core 3: reserved for rank 0",
    ]
    tips = {words(group): tip(group) for group in groups(root, "cpu")}
    assert tips["4 · 1"] == "CPU 4, rank 1, core 4, L3 1, NUMA node 1, package 1"
    assert tips["8 · ."] == "CPU 8, idle, core 0, L3 0, NUMA node 0, package 0"
    assert legend(root) == [
        "core, with its CPU numbers and their use",
        "0 = rank 0: CPUs 0-2, 3 threads",
        "1 = rank 1: CPUs 4-6, 3 threads",
        "R = reserved",
        ". = idle",
    ]


def test_legends_have_all_symbols_and_no_others():
    keys = legend(parse(plan(HYBRID, ranks=2, mask="0-1|3-4")))
    assert keys[4:] == [". = idle", "* = excluded by default (isolated)", "- = not allowed"]
    keys = legend(parse(plan(HYBRID, ranks=1, mask="0-5,7")))
    assert keys[3:] == ["- = not allowed", "CPU excluded by default (isolated)"]
    keys = legend(parse(plan(DUAL, ranks=2, strategy="all", smt="all")))
    assert keys[3:] == ["0/1 = shared by these ranks"]
    half = plan(DUAL, ranks=9, smt="all")
    assert "shared" not in str(legend(parse(half)))
    assert "0/1  shared by these ranks" in parts(render_picture(half, PLAIN))[2]


def test_service_cpus_have_a_symbol_and_a_key():
    overlay = make_overlay(plan(DUAL, ranks=2, cores=2, service_cores=1))
    assert [overlay.cores[core].symbol for core in range(8)] == ["0", "0", "0s", ".", "1", "1", "1s", "."]
    assert overlay.cpus[10].words == "for service threads of rank 0"
    assert overlay.cores[2].words == "for service threads of rank 0"
    assert overlay.cores[2].mark == overlay.cores[0].mark
    assert overlay.ranks[0].words == "rank 0: CPUs 0-1, 2 threads, service CPUs 2,10"
    picture = render_picture(plan(DUAL, ranks=2, cores=2, service_cores=1), PLAIN)
    assert "0s  for service threads of this rank" in picture
    assert picture.count("for service threads") == 1


def test_legends_of_many_ranks_only_explain_the_symbols():
    made = plan(make_machine(Shape(cores=KEYS + 1)), ranks=KEYS + 1)
    keys = legend(parse(made))
    assert keys[1:] == [
        f"ranks {text}" for text in ("0,7,14", "1,8,15", "2,9,16", "3,10", "4,11", "5,12", "6,13")
    ]
    assert parts(render_picture(made, PLAIN))[2] == "0 to 16  ranks; --format table lists their CPUs"


def test_long_lists_of_ranks_and_of_cpus_are_abbreviated():
    mask = "|".join(["0-1", *["0", "2"] * 8])
    made = plan(DUAL, ranks=None, mask=mask, sharing=Sharing.SHARE)
    assert make_overlay(made).cpus[0].symbol == "a"
    _, boxes, keys, _ = parts(render_picture(made, PLAIN))
    assert "│ a 0 b . " in boxes
    assert "      a  ranks 0-1,3,5,7,9,11,13,15\n      b  ranks 2,4,6,8,10,12,14,16" in keys
    far = make_machine(Shape(cores=300)).replace(source="far")
    odd = ",".join(str(cpu * cpu) for cpu in range(17))
    assert "rank 0: 17 CPUs, 17 threads" in render_picture(plan(far, mask=odd), PLAIN)


def test_legends_of_many_letters_only_show_their_range():
    cores = KEYS + 1
    lacking = [{rank % cores, (rank + 4) % cores, (rank + 8) % cores} for rank in range(cores)]
    mask = "|".join(",".join(str(cpu) for cpu in range(cores) if cpu not in lack) for lack in lacking)
    made = plan(make_machine(Shape(cores=cores)), ranks=None, mask=mask, sharing=Sharing.SHARE)
    words = "sets of many ranks; --format json lists them"
    assert parts(render_picture(made, PLAIN))[2].split("\n")[1:] == [f" a to q  {words}"]
    assert legend(parse(made))[-1] == f"a to q = {words}"


COUNTED = [(Shape(packages=8, nodes=4, l3s=4, cores=16, smt=2), 64), (Shape(packages=4, l3s=4, cores=32), 1)]


@pytest.mark.parametrize(("shape", "ranks"), COUNTED)
def test_large_pictures_count_cores_and_stay_short(shape, ranks):
    made = plan(make_machine(shape), ranks=ranks)
    _, boxes, keys, *_ = parts(render_picture(made, PLAIN))
    assert len(boxes.split("\n")) <= LINES
    assert "NUMA node" in boxes
    assert Counter(cells(boxes)) == Counter(
        symbol_of(made, core.cpus) for core in made.machine.at(Level.CORE)
    )
    assert ("×2" in keys) == ("×" in boxes)


def test_a_picture_that_cannot_be_short_shows_everything():
    made = plan(make_machine(Shape(packages=8, nodes=4, l3s=4, cores=16)), ranks=1024)
    boxes = parts(render_picture(made, PLAIN))[1]
    assert len(boxes.split("\n")) > LINES
    assert rows(boxes)[127] == [str(rank) for rank in range(1016, 1024) for _ in range(2)]


def test_colours_are_those_of_ranks_and_neighbours_differ():
    picture = render_picture(plan(DUAL, ranks=4), Screen(styled=True))
    painted = re.findall("\033\\[([^m]+)m([0-9 ]+)\033", picture)
    assert [text for _, text in painted] == ["0 0", "1 1", "2 2", "3 3", "0", "1", "2", "3"]
    assert len({code for code, _ in painted}) == 4
    assert [code for code, _ in painted[:4]] == [code for code, _ in painted[4:]]


def test_cpus_used_by_other_runs_are_shown_in_colour_too():
    other = LiveRun(run_id="other", pid=1, uid=1, started=1, ranks=(), claimed=CpuSet([0]))
    made = make_plan(DUAL, Request(sharing=Sharing.AVOID), [other])
    picture = render_picture(made, Screen(styled=True))
    assert "\033[2mo\033[0m  used by other runs" in picture


def contrast(colour, background):
    """The contrast of two colours as WCAG 2 defines it: 4.5 is enough for small text."""
    values = []
    for shown in (colour, background):
        channels = [int(shown[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        values.append(sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05)
    return max(values) / min(values)


def test_text_is_readable_on_the_colour_of_every_rank():
    style = parse(plan(DUAL)).findtext("{http://www.w3.org/2000/svg}style")
    ink = re.search("text{[^}]*fill:(#[0-9a-f]{6})", style)[1]
    fills = re.findall(r"\.rank-(\d)>rect\{fill:(#[0-9a-f]{6})", style)
    assert [int(number) for number, _ in fills] == list(range(COLOURS))
    assert len({fill for _, fill in fills}) == COLOURS
    assert min(contrast(ink, fill) for _, fill in fills) > 4.5
